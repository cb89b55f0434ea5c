//! A hash of all events. Two histories of one seed must have the same hash.

use std::collections::HashMap;
use std::path::Path;

/// A running hash of events, with names for the random identities in them.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    pub(crate) events: u64,
    /// Identities, numbered in order of their first occurrence. The product draws them at random.
    identities: HashMap<String, usize>,
    loud: bool,
}

impl Trace {
    /// Creates an empty trace. `loud` prints every event.
    pub(crate) fn new(loud: bool) -> Self {
        Self { loud, ..Self::default() }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn note(&mut self, event: &str) {
        self.events += 1;
        for byte in event.bytes() {
            self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
        }
        self.hash = self.hash.rotate_left(17);
        if self.loud {
            println!("{:6} {event}", self.events);
        }
    }

    /// Returns a path in which a number replaces each identity.
    pub(crate) fn name(&mut self, path: &Path) -> String {
        let text = path.to_string_lossy();
        let mut named = String::with_capacity(text.len());
        let mut rest = &*text;
        while let Some(character) = rest.chars().next() {
            let run = rest.bytes().take_while(|byte| byte.is_ascii_hexdigit() || *byte == b'-').count();
            // Identities are written with or without dashes. Epochs and part numbers are shorter.
            if run >= 32 {
                let known = self.identities.len();
                let number = *self.identities.entry(rest[..run].to_owned()).or_insert(known);
                named.push_str(&format!("#{number}"));
                rest = &rest[run..];
            } else {
                let taken = run.max(character.len_utf8());
                named.push_str(&rest[..taken]);
                rest = &rest[taken..];
            }
        }
        named
    }
}
