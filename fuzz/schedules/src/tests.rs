//! Tests of many thread schedules. A deadlock, a task that runs twice or out of order, or a lost message fails the test
//! and reports the schedule.

use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

use super::mailbox::{MailboxTransport, Mailboxes};
use super::process::pool::{Pool, TaskQueue};
use super::process::sync::{Arc, Mutex};
use crate::shuffle::{Channel, Sent, Transport};
use crate::writer::{Completion, PartFactory, Task};

const RUNS: usize = 2_000;

/// A rank whose tasks run one after another. It replaces an endpoint with a writer.
#[derive(Debug, Default)]
struct Rank {
    /// Number of tasks that have not been submitted.
    left: u32,
    /// The number of the submitted task, if any.
    out: Option<u32>,
    done: Vec<u32>,
    /// Number of remaining appends of the owner. Each creates a task.
    unseen: u32,
}

impl Rank {
    fn next_task(&mut self) -> Option<Task> {
        if self.out.is_some() || self.left == 0 {
            return None;
        }
        self.left -= 1;
        let number = self.done.len() as u32;
        self.out = Some(number);
        Some(Task(number))
    }

    fn complete(&mut self, completion: Completion) {
        assert_eq!(self.out.take(), Some(completion.0), "a task that was not out");
        self.done.push(completion.0);
    }
}

struct Job {
    ranks: Arc<Vec<Mutex<Rank>>>,
    queue: Arc<TaskQueue>,
    factory: Arc<PartFactory>,
}

fn submit_next(queue: &TaskQueue, factory: &Arc<PartFactory>, number: u32, rank: &mut Rank) {
    if let Some(task) = rank.next_task() {
        queue.submit(number, Arc::clone(factory), task);
    }
}

fn start(ranks: u32, tasks: u32, threads: usize) -> (Job, Pool) {
    let rank = |_| Mutex::new(Rank { unseen: tasks, ..Rank::default() });
    let ranks = Arc::new((0..ranks).map(rank).collect::<Vec<_>>());
    let (queue, factory) = (Arc::new(TaskQueue::default()), Arc::new(PartFactory));
    let (shared, tasks, made) = (Arc::clone(&ranks), Arc::clone(&queue), Arc::clone(&factory));
    // The writer submits its next task without further calls, as in `LocalRanks::start`.
    let complete = move |number: u32, completion| {
        let mut rank = shared[number as usize].lock().unwrap();
        rank.complete(completion);
        submit_next(&tasks, &made, number, &mut rank);
    };
    let pool = Pool::start(Arc::clone(&queue), threads, complete).unwrap();
    (Job { ranks, queue, factory }, pool)
}

impl Job {
    /// Visits every rank, and waits when none makes progress, like `LocalRanks::drive_until`. The wait has no timeout,
    /// so a lost wakeup is a deadlock.
    fn drive_until_done(&self, tasks: u32) {
        loop {
            let seen = self.queue.completions();
            let (mut all, mut moved) = (true, false);
            for (number, rank) in self.ranks.iter().enumerate() {
                let mut rank = rank.lock().unwrap();
                if rank.unseen > 0 {
                    // This append fills a memtable.
                    (rank.unseen, rank.left) = (rank.unseen - 1, rank.left + 1);
                    moved = true;
                }
                submit_next(&self.queue, &self.factory, number as u32, &mut rank);
                all &= rank.done.len() as u32 == tasks;
            }
            if all {
                return;
            }
            if !moved {
                self.queue.wait(seen, Duration::MAX);
            }
        }
    }
}

#[test]
fn every_task_is_done_once_in_its_turn_and_nobody_waits_in_vain() {
    shuttle::check_random(
        || {
            let (ranks, tasks, threads) = (2, 3, thread_rng().gen_range(1..3));
            let (job, pool) = start(ranks, tasks, threads);
            job.drive_until_done(tasks);
            drop(pool);
            for rank in job.ranks.iter() {
                assert_eq!(rank.lock().unwrap().done, [0, 1, 2]);
            }
        },
        RUNS,
    );
}

#[test]
fn two_callers_drive_the_same_ranks() {
    shuttle::check_pct(
        || {
            let (job, pool) = start(2, 2, 2);
            let job = Arc::new(job);
            let other = Arc::clone(&job);
            let helper = shuttle::thread::spawn(move || other.drive_until_done(2));
            job.drive_until_done(2);
            helper.join().unwrap();
            drop(pool);
        },
        RUNS,
        3,
    );
}

#[test]
fn a_pool_that_is_dropped_finishes_what_is_queued() {
    shuttle::check_random(
        || {
            let (job, pool) = start(3, 1, 2);
            for (number, rank) in job.ranks.iter().enumerate() {
                let mut rank = rank.lock().unwrap();
                rank.left = 1;
                submit_next(&job.queue, &job.factory, number as u32, &mut rank);
            }
            drop(pool);
            assert!(job.ranks.iter().all(|rank| rank.lock().unwrap().done == [0]));
        },
        RUNS,
    );
}

#[test]
fn a_dataset_that_is_dropped_leaves_the_pool_to_the_others() {
    shuttle::check_random(
        || {
            let (tasks, threads) = (3, thread_rng().gen_range(1..3));
            let (job, pool) = start(2, tasks, threads);
            {
                let mut leaving = job.ranks[0].lock().unwrap();
                (leaving.left, leaving.unseen) = (tasks, 0);
                submit_next(&job.queue, &job.factory, 0, &mut leaving);
            }
            let (queue, ranks) = (Arc::clone(&job.queue), Arc::clone(&job.ranks));
            let leave = shuttle::thread::spawn(move || {
                queue.forget(0);
                ranks[0].lock().unwrap().done.len()
            });
            let other = &job.ranks[1];
            while other.lock().unwrap().done.len() < tasks as usize {
                let seen = job.queue.completions();
                let mut rank = other.lock().unwrap();
                let moved = rank.unseen > 0;
                if moved {
                    (rank.unseen, rank.left) = (rank.unseen - 1, rank.left + 1);
                }
                submit_next(&job.queue, &job.factory, 1, &mut rank);
                let done = rank.done.len() == tasks as usize;
                drop(rank);
                if !moved && !done {
                    job.queue.wait(seen, Duration::MAX);
                }
            }
            let done = leave.join().unwrap();
            drop(pool);
            assert_eq!(job.ranks[0].lock().unwrap().done.len(), done, "nothing is done for a dataset that left");
        },
        RUNS,
    );
}

#[test]
fn messages_arrive_once_in_order_within_their_credit_and_call_for_attention() {
    const CREDIT: usize = 2;
    const MESSAGES: u8 = 4;
    shuttle::check_random(
        || {
            let mailboxes = Arc::new(Mailboxes::new(2, CREDIT));
            let mut receiver = MailboxTransport { rank: 0, mailboxes: Arc::clone(&mailboxes) };
            let senders = [Channel::Data, Channel::Control].map(|channel| {
                let mut link = MailboxTransport { rank: 1, mailboxes: Arc::clone(&mailboxes) };
                shuttle::thread::spawn(move || {
                    for number in 0..MESSAGES {
                        let mut message = vec![number];
                        while let Sent::NoCredit(back) = link.send(0, channel, message) {
                            message = back;
                            shuttle::thread::yield_now();
                        }
                    }
                })
            });
            let (mut data, mut control, mut calls) = (Vec::new(), Vec::new(), 0);
            while data.len() + control.len() < 2 * usize::from(MESSAGES) || calls < usize::from(MESSAGES) {
                data.extend(receiver.poll(Channel::Data).into_iter().flatten());
                if mailboxes.next_waiting() == Some(0) {
                    calls += 1;
                    control.extend(receiver.poll(Channel::Control).expect("who is called finds a message"));
                }
                shuttle::thread::yield_now();
            }
            for sender in senders {
                sender.join().unwrap();
            }
            assert_eq!((data, control), ((0..MESSAGES).collect(), (0..MESSAGES).collect()));
            assert_eq!(mailboxes.next_waiting(), None);
        },
        RUNS,
    );
}
