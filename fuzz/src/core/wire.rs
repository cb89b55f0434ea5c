//! Messages between ranks, encoded by hand as a faulty peer may send them. Their layout is that of
//! `shuffle/message.rs`. If that layout changes, engines refuse these messages at once; the corpora then cover less,
//! but stay valid.

use turbidite::partition::Sketch;

use super::script::Script;

/// An encoder of fields.
#[derive(Debug, Default, Clone)]
pub struct Fields(pub Vec<u8>);

impl Fields {
    /// Begins a message with its kind and session.
    pub fn head(kind: u8, session: u32) -> Self {
        Self(vec![kind]).word(session)
    }

    /// Appends four bytes.
    pub fn word(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends eight bytes.
    pub fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// Appends a byte that is 0 or 1.
    fn flag(mut self, script: &mut Script<'_>) -> Self {
        self.0.push(script.byte() & 1);
        self
    }

    /// Returns whether the last byte is 1, after a flag.
    fn is_set(&self) -> bool {
        self.0.last() == Some(&1)
    }

    /// Appends a length and bytes.
    pub fn block(mut self, bytes: &[u8]) -> Self {
        self = self.long(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Number of kinds of control messages, which are numbered from 1.
pub const KINDS: u8 = 15;

/// Returns a small number in most cases, and any number in some.
fn count(script: &mut Script<'_>) -> u64 {
    match script.byte() {
        255 => script.long(),
        254 => u64::MAX,
        small => u64::from(small),
    }
}

/// Returns a control message of `kind`, with its fields from the script. `table` and `payload` are from a valid peer.
pub fn control(kind: u8, session: u32, script: &mut Script<'_>, table: &[u8], payload: &[u8]) -> Vec<u8> {
    let head = Fields::head(kind, session);
    let whole = |script: &mut Script<'_>, sane: &[u8]| match script.byte() {
        0 => script.long_chunk().to_vec(),
        _ => sane.to_vec(),
    };
    match kind {
        2 => {
            let head = head.block(&whole(script, payload)).flag(script);
            if head.is_set() {
                let head = head.long(count(script)).long(count(script)).long(count(script));
                head.block(&whole(script, table))
            } else {
                head
            }
        }
        3 | 4 => head.word(count(script) as u32).flag(script),
        8 => head.word(count(script) as u32),
        5 => {
            let head = head.word(count(script) as u32).word(count(script) as u32);
            let head = head.long(count(script)).long(count(script)).flag(script);
            let head = head.long(count(script)).long(count(script));
            let head = head.long(count(script)).long(count(script)).long(count(script));
            let loads = script.byte() % 4;
            let head =
                (0..loads).fold(head.word(loads.into()), |head, _| head.word(count(script) as u32).long(count(script)));
            let head = head.flag(script);
            if head.is_set() {
                let sane = pivots(script);
                head.block(&whole(script, &sane))
            } else {
                head
            }
        }
        6 => head.long(count(script)).long(0).long(u64::MAX).block(&whole(script, table)),
        7 => {
            let head = head.long(count(script)).word(count(script) as u32).long(count(script)).long(count(script));
            let sane = pivots(script);
            head.block(&whole(script, &sane))
        }
        10 => head.long(count(script)),
        15 => head.word(count(script) as u32).long(count(script)),
        9 => head.word(count(script) as u32).long(count(script)),
        11 => {
            let payloads = script.byte() % 4;
            (0..payloads).fold(head.word(payloads.into()), |head, _| {
                head.word(count(script) as u32).block(&whole(script, payload))
            })
        }
        12 | 14 => head.word(count(script) as u32).block(script.chunk()),
        13 => head.block(&whole(script, payload)),
        _ => head,
    }
    .0
}

/// Returns encoded pivots of up to three keys, each of which may represent many.
fn pivots(script: &mut Script<'_>) -> Vec<u8> {
    let keys: Vec<u64> = (0..script.byte() % 4).map(|_| count(script)).collect();
    let mut sketch = Sketch::new(64, 1);
    sketch.observe(&keys);
    let mut bytes = Vec::new();
    let factor = if keys.is_empty() { 1 } else { count(script) };
    sketch.summarize(16, 0.5).scaled(factor as f64).encode(&mut bytes);
    bytes
}

/// Returns a batch: its header and its content.
pub fn data(session: u32, destination: u32, table_version: u32, rows: u32, content: &[u8]) -> Vec<u8> {
    let mut message = Fields::default().word(session).word(1).word(destination).word(table_version).word(rows).0;
    message.extend_from_slice(content);
    message
}
