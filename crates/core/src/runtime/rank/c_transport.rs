//! Adapts a C library's transport, such as libturbidite_mpi's, to the core's [`Transport`].
//!
//! `TransportTable` is `turbidite_transport` of turbidite.h, which documents the contract. Channels are numbered as in
//! [`Channel`]. The library borrows a message's memory until it returns the message's token. Messages from a rank to
//! itself do not reach the library: they wait in a queue of this adapter, limited by credit.
//!
//! Several datasets may be written in sequence with one library's transport. Messages of the first may still be in
//! flight when the second is opened. Tokens are therefore never reused in a process, and messages that outlive their
//! adapter are kept for the next adapter.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::without_provenance_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Result, UsageError};
use crate::shuffle::{Channel, Sent, Topology, Transport};

/// Version of the structs shared with C libraries: `TURBIDITE_ABI_VERSION`.
pub const ABI_VERSION: u32 = 2;

const SENT: i32 = 0;
const PENDING: i32 = 1;
const NO_CREDIT: i32 = 2;

/// Token of the next message. Never 0, since NULL means "none". A process does not send 2^64 messages.
static NEXT_TOKEN: AtomicUsize = AtomicUsize::new(1);

/// Messages in flight whose adapter was dropped. Each is freed only after the library has returned its token.
static ORPHANS: Mutex<Option<HashMap<usize, Vec<u8>>>> = Mutex::new(None);

/// The C struct `turbidite_transport`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TransportTable {
    struct_size: u32,
    abi_version: u32,
    context: *mut c_void,
    /// The number of this rank.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    nodes: *const u32,
    send: Option<unsafe extern "C" fn(*mut c_void, u32, i32, *const c_void, usize, *mut c_void) -> i32>,
    completed: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    poll: Option<unsafe extern "C" fn(*mut c_void, i32, *mut *const c_void, *mut usize) -> i32>,
    release: Option<unsafe extern "C" fn(*mut c_void, *const c_void)>,
    describe: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
    abandon: Option<unsafe extern "C" fn(*mut c_void)>,
}

/// A transport with all of its functions.
#[derive(Debug)]
pub struct ForeignTransport {
    context: *mut c_void,
    rank: u32,
    send: unsafe extern "C" fn(*mut c_void, u32, i32, *const c_void, usize, *mut c_void) -> i32,
    completed: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    poll: unsafe extern "C" fn(*mut c_void, i32, *mut *const c_void, *mut usize) -> i32,
    release: unsafe extern "C" fn(*mut c_void, *const c_void),
    describe: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    abandon: unsafe extern "C" fn(*mut c_void),
    /// Messages whose memory the library borrows, by token.
    pending: HashMap<usize, Vec<u8>>,
    to_itself: [VecDeque<Vec<u8>>; Channel::COUNT],
    credit_batches: usize,
    failure: Option<String>,
    /// Connections for indexes.
    further: VecDeque<ForeignTransport>,
}

// SAFETY: by the contract, all functions are called on the thread that calls the job, one thread at a time. The context
// is only passed through.
unsafe impl Send for TransportTable {}

// SAFETY: as above.
unsafe impl Send for ForeignTransport {}

impl TransportTable {
    /// Returns the node of each rank, if the library provides the nodes.
    ///
    /// # Safety
    /// `nodes` is NULL or points to as many numbers as there are ranks.
    pub unsafe fn topology(&self) -> Option<Topology> {
        // SAFETY: `nodes` is not NULL, so the caller guarantees the numbers.
        (!self.nodes.is_null())
            .then(|| Topology::from_nodes(unsafe { std::slice::from_raw_parts(self.nodes, self.ranks as usize) }))
    }

    /// Checks the table provided by a library. `credit_batches` limits the messages from a rank to itself.
    ///
    /// # Errors
    /// When the library was built for another release, or a function is missing.
    ///
    /// # Safety
    /// The functions must follow the contract of turbidite.h, and the context must outlive the transport.
    pub unsafe fn resolve(&self, credit_batches: usize) -> Result<ForeignTransport> {
        let argument = |what| UsageError::Option { option: "transport", what };
        if self.struct_size as usize != size_of::<Self>() || self.abi_version != ABI_VERSION {
            let what = format!(
                "has ABI version {} and {} bytes, this library has version {ABI_VERSION} and {}: rebuild it with \
                 the turbidite.h of this release",
                self.abi_version,
                self.struct_size,
                size_of::<Self>()
            );
            return Err(argument(what).into());
        }
        if self.rank >= self.ranks {
            return Err(argument(format!("its rank {} is outside a job of {} ranks", self.rank, self.ranks)).into());
        }
        let (Some(send), Some(completed), Some(poll), Some(release), Some(describe), Some(abandon)) =
            (self.send, self.completed, self.poll, self.release, self.describe, self.abandon)
        else {
            return Err(argument("lacks a function".to_owned()).into());
        };
        Ok(ForeignTransport {
            context: self.context,
            rank: self.rank,
            send,
            completed,
            poll,
            release,
            describe,
            abandon,
            pending: HashMap::new(),
            to_itself: [const { VecDeque::new() }; Channel::COUNT],
            credit_batches,
            failure: None,
            further: VecDeque::new(),
        })
    }
}

impl ForeignTransport {
    /// Adds connections between the same ranks, one for each index that is made of the records.
    #[must_use]
    pub fn with_further(mut self, further: Vec<Self>) -> Self {
        self.further = further.into();
        self
    }

    fn fail(&mut self) {
        // SAFETY: the library guarantees a string that is valid until its next call.
        let text = unsafe {
            let text = (self.describe)(self.context);
            if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
        };
        self.failure.get_or_insert(text.unwrap_or_else(|| "the transport reported no cause".to_owned()));
    }

    /// Frees the memory of messages that the library has sent.
    fn reclaim(&mut self) {
        loop {
            // SAFETY: the context is the library's own.
            let token = unsafe { (self.completed)(self.context) }.addr();
            if token == 0 {
                return;
            }
            if self.pending.remove(&token).is_none() && adopt(token).is_none() {
                let what = format!("the transport completed message {token}, which was not in flight");
                self.failure.get_or_insert(what);
                return;
            }
        }
    }
}

/// Takes the memory of a message that an earlier adapter sent.
fn adopt(token: usize) -> Option<Vec<u8>> {
    ORPHANS.lock().unwrap_or_else(PoisonError::into_inner).as_mut()?.remove(&token)
}

impl Transport for ForeignTransport {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        if to == self.rank {
            let queue = &mut self.to_itself[channel as usize];
            if channel != Channel::Control && queue.len() >= self.credit_batches {
                return Sent::NoCredit(message);
            }
            queue.push_back(message);
            return Sent::Accepted;
        }
        if self.failure.is_some() {
            return Sent::Accepted;
        }
        self.reclaim();
        let token = NEXT_TOKEN.fetch_add(1, Ordering::Relaxed);
        let (address, bytes, name) = (message.as_ptr().cast(), message.len(), without_provenance_mut(token));
        // SAFETY: the message's memory keeps its address until the library returns the token. Moving a vector does not
        // move its heap memory, and the vector is kept under its token.
        let sent = unsafe { (self.send)(self.context, to, channel as i32, address, bytes, name) };
        match sent {
            SENT => Sent::Accepted,
            PENDING => {
                self.pending.insert(token, message);
                Sent::Accepted
            }
            NO_CREDIT if channel != Channel::Control => Sent::NoCredit(message),
            _ => {
                self.fail();
                Sent::Accepted
            }
        }
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        if let Some(message) = self.to_itself[channel as usize].pop_front() {
            return Some(message);
        }
        if self.failure.is_some() {
            return None;
        }
        let (mut message, mut bytes) = (std::ptr::null(), 0);
        // SAFETY: both addresses point to this stack frame.
        match unsafe { (self.poll)(self.context, channel as i32, &raw mut message, &raw mut bytes) } {
            0 => {
                self.reclaim();
                None
            }
            1 => {
                let copy = if bytes == 0 {
                    Vec::new()
                } else {
                    // SAFETY: the library lends `bytes` bytes at `message` until they are released.
                    unsafe { std::slice::from_raw_parts(message.cast::<u8>(), bytes) }.to_vec()
                };
                // SAFETY: the message was just lent, and is not used afterwards.
                unsafe { (self.release)(self.context, message) };
                Some(copy)
            }
            _ => {
                self.fail();
                None
            }
        }
    }

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn take_further(&mut self) -> Option<Box<dyn Transport + Send>> {
        self.further.pop_front().map(|further| Box::new(further) as _)
    }

    fn abandon(&mut self) {
        // From here on, only `completed` of the library's functions is called.
        self.failure.get_or_insert_with(|| "the ranks have lost their connection".to_owned());
        // SAFETY: the context is the library's own.
        unsafe { (self.abandon)(self.context) };
    }
}

impl Drop for ForeignTransport {
    /// Keeps the memory of unsent messages, since the library may still use it. If the library has failed or never
    /// returns the tokens, the memory leaks: it must not be freed while in use.
    fn drop(&mut self) {
        self.reclaim();
        if !self.pending.is_empty() {
            let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
            orphans.get_or_insert_default().extend(self.pending.drain());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// A library that keeps every message until the test releases it. The test accesses it while the adapter has its
    /// address, so both use shared references.
    #[derive(Default)]
    struct Slow {
        kept: RefCell<VecDeque<(*mut c_void, *const u8, usize)>>,
        done: RefCell<VecDeque<*mut c_void>>,
    }

    unsafe extern "C" fn send(
        context: *mut c_void,
        _: u32,
        _: i32,
        message: *const c_void,
        bytes: usize,
        token: *mut c_void,
    ) -> i32 {
        // SAFETY: the context is the test's.
        unsafe { &*context.cast::<Slow>() }.kept.borrow_mut().push_back((token, message.cast(), bytes));
        PENDING
    }

    unsafe extern "C" fn completed(context: *mut c_void) -> *mut c_void {
        // SAFETY: as above.
        unsafe { &*context.cast::<Slow>() }.done.borrow_mut().pop_front().unwrap_or(std::ptr::null_mut())
    }

    unsafe extern "C" fn poll(_: *mut c_void, _: i32, _: *mut *const c_void, _: *mut usize) -> i32 {
        0
    }

    unsafe extern "C" fn release(_: *mut c_void, _: *const c_void) {}

    unsafe extern "C" fn describe(_: *mut c_void) -> *const c_char {
        std::ptr::null()
    }

    unsafe extern "C" fn abandon(_: *mut c_void) {}

    fn table(slow: &Slow) -> TransportTable {
        TransportTable {
            struct_size: size_of::<TransportTable>() as u32,
            abi_version: ABI_VERSION,
            context: std::ptr::from_ref(slow).cast_mut().cast(),
            rank: 0,
            ranks: 2,
            nodes: std::ptr::null(),
            send: Some(send),
            completed: Some(completed),
            poll: Some(poll),
            release: Some(release),
            describe: Some(describe),
            abandon: Some(abandon),
        }
    }

    #[test]
    fn what_one_dataset_has_sent_may_leave_while_the_next_one_is_written() {
        let slow = Slow::default();
        let table = table(&slow);
        // SAFETY: the functions above follow the contract.
        let mut first = unsafe { table.resolve(1) }.unwrap();
        first.send(1, Channel::Control, vec![7; 1000]);
        first.send(1, Channel::Control, vec![8; 1000]);
        drop(first);
        // SAFETY: as above.
        let mut second = unsafe { table.resolve(1) }.unwrap();
        second.send(1, Channel::Control, vec![9; 1000]);
        for expected in [7, 8, 9] {
            let (token, message, bytes) = slow.kept.borrow_mut().pop_front().unwrap();
            // SAFETY: the message's token has not been returned, so the library still owns the memory.
            let content = unsafe { std::slice::from_raw_parts(message, bytes) };
            assert!(content.iter().all(|&byte| byte == expected));
            slow.done.borrow_mut().push_back(token);
            assert!(second.poll(Channel::Control).is_none());
            assert_eq!(second.failure(), None);
        }
        slow.done.borrow_mut().push_back(without_provenance_mut(usize::MAX));
        second.poll(Channel::Control);
        assert!(second.failure().is_some_and(|why| why.contains("not in flight")), "an invented token");
    }
}
