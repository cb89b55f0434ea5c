//! Messages between the ranks of one process: a mailbox per rank, and a list of the ranks with unread control messages.

use crate::runtime::process::sync::{Arc, Mutex, MutexGuard, PoisonError};
use crate::shuffle::{Channel, Sent, Transport};
use std::collections::VecDeque;

/// The messages sent to a rank, by channel.
#[derive(Debug, Default)]
struct Mailbox {
    queues: [VecDeque<Vec<u8>>; Channel::COUNT],
}

/// All ranks' mailboxes.
#[derive(Debug)]
pub(in crate::runtime) struct Mailboxes {
    boxes: Vec<Mutex<Mailbox>>,
    credit_batches: usize,
    /// Ranks that received control messages since they were last driven. The list may contain a rank several times.
    attention: Mutex<VecDeque<u32>>,
}

/// Locks a queue, even if the lock is poisoned: a panic elsewhere leaves only whole messages in the queues.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mailboxes {
    pub(in crate::runtime) fn new(ranks: u32, credit_batches: usize) -> Self {
        let boxes = (0..ranks).map(|_| Mutex::default()).collect();
        Self { boxes, credit_batches, attention: Mutex::default() }
    }

    /// Removes and returns a rank with unread control messages, which should be driven.
    pub(in crate::runtime) fn next_waiting(&self) -> Option<u32> {
        lock(&self.attention).pop_front()
    }
}

/// One rank's connection to the mailboxes.
#[derive(Debug)]
pub(in crate::runtime) struct MailboxTransport {
    pub(in crate::runtime) rank: u32,
    pub(in crate::runtime) mailboxes: Arc<Mailboxes>,
}

impl MailboxTransport {
    /// Returns the connection of a rank that is alone.
    pub(in crate::runtime) fn alone(credit_batches: usize) -> Self {
        Self { rank: 0, mailboxes: Arc::new(Mailboxes::new(1, credit_batches)) }
    }
}

impl Transport for MailboxTransport {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        let mut mailbox = lock(&self.mailboxes.boxes[to as usize]);
        let queue = &mut mailbox.queues[channel as usize];
        if channel == Channel::Control {
            queue.push_back(message);
            drop(mailbox);
            lock(&self.mailboxes.attention).push_back(to);
        } else if queue.len() < self.mailboxes.credit_batches {
            queue.push_back(message);
        } else {
            return Sent::NoCredit(message);
        }
        Sent::Accepted
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        lock(&self.mailboxes.boxes[self.rank as usize]).queues[channel as usize].pop_front()
    }

    fn take_further(&mut self) -> Option<Box<dyn Transport + Send>> {
        // Several ranks would have to meet in the same mailboxes.
        let is_alone = self.mailboxes.boxes.len() == 1;
        is_alone.then(|| Box::new(Self::alone(self.mailboxes.credit_batches)) as _)
    }
}
