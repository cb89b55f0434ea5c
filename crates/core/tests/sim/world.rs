//! The scheduler. Each rank runs on its own thread, but only one thread runs at a time, and the seed determines which.
//!
//! The running thread holds the baton. When it waits, it draws the next rank, does the due background work of any rank
//! itself, and wakes the drawn rank's thread. One seed therefore gives one history on every machine.
//!
//! Time is simulated. It advances with each turn, and jumps when all ranks wait.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use turbidite::format::EncodeBuffers;
use turbidite::runtime::{Background, Enrolment, Host, ProcessResources};

use crate::coverage::Coverage;
use crate::faults::{Faults, Verdict};
use crate::network::Network;
use crate::random::Random;
use crate::trace::Trace;

/// Number of turns without a batch, a file operation or a new control message after which a launch counts as stuck.
/// Ranks that have lost each other stop after a tenth of these turns.
const IDLE_TURN_LIMIT: u64 = 50_000;

/// Number of turns after which a launch counts as stuck even with progress. The slowest launch that ends takes about a
/// fifth of them.
const TURN_LIMIT: u64 = 5_000_000;

/// Maximum time between two polls of a waiting rank, far below the stall limit.
const LONGEST_PAUSE_NS: u64 = 200_000_000;

/// One rank's state in the scheduler.
#[derive(Debug)]
struct Actor {
    finished: bool,
    dead: bool,
    wakes_ns: u64,
    /// Factor by which all of the rank's waits are multiplied.
    slowness: u64,
    /// Number of pauses since the rank last made progress.
    idle_pauses: u32,
    background: Option<Arc<Background>>,
    /// Time at which the rank's queued background work is done, if that time has been drawn.
    due_ns: Option<u64>,
    buffers: Option<Box<EncodeBuffers>>,
}

/// The mutable state of the scheduler.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) now_ns: u64,
    pub(crate) turns: u64,
    /// The turn in which the job last made progress.
    last_progress: u64,
    actors: Vec<Actor>,
    running: Option<usize>,
    /// The rank whose background work is running.
    working: Option<usize>,
    pub(crate) trace: Trace,
    pub(crate) coverage: Coverage,
    /// The network of the records, and those of the indexes.
    pub(crate) networks: Vec<Network>,
    pub(crate) faults: Faults,
    /// A violation by the product, if any.
    pub(crate) violation: Option<String>,
}

/// Ranks that share simulated time.
#[derive(Debug)]
pub(crate) struct World {
    state: Mutex<State>,
    bells: Vec<Condvar>,
    ended: Condvar,
}

enum Choice {
    Rank(usize),
    Work(usize, Arc<Background>, Box<EncodeBuffers>),
    Nobody,
}

impl State {
    pub(crate) fn is_dead(&self, rank: u32) -> bool {
        self.actors[rank as usize].dead
    }

    /// Records progress of the job. Repeated counts of deliveries are no progress, since they continue forever.
    pub(crate) fn progress(&mut self) {
        self.last_progress = self.turns;
    }

    /// Records progress of this rank.
    pub(crate) fn stir(&mut self, rank: u32) {
        self.actors[rank as usize].idle_pauses = 0;
    }

    pub(crate) fn kill(&mut self, rank: Option<u32>) {
        for (number, actor) in self.actors.iter_mut().enumerate() {
            actor.dead |= rank.is_none_or(|rank| rank as usize == number);
        }
    }

    pub(crate) fn blame(&mut self, violation: String) {
        if self.violation.is_none() {
            self.trace.note(&violation);
            self.violation = Some(violation);
        }
        self.kill(None);
    }

    fn choose(&mut self) -> Choice {
        self.turns += 1;
        let idle_turns = self.turns - self.last_progress;
        if (idle_turns > IDLE_TURN_LIMIT || self.turns > TURN_LIMIT) && self.violation.is_none() {
            self.blame(format!("progress: nothing has moved for {idle_turns} of {} turns", self.turns));
        }
        self.now_ns += self.random.below(500);
        if let Some(rank) = self.faults.due_by_turn(self.turns) {
            self.kill(rank);
            self.trace.note("killed between two operations");
        }
        for actor in &mut self.actors {
            let waits = actor.background.as_ref().is_some_and(|background| background.is_waiting());
            if waits && actor.due_ns.is_none() && actor.buffers.is_some() {
                let (delay, now) = (self.faults.work_delay_ns(&mut self.random, actor.slowness), self.now_ns);
                actor.due_ns = Some(now + delay);
            }
        }
        if self.actors.iter().all(|actor| actor.finished) {
            return Choice::Nobody;
        }
        loop {
            let now = self.now_ns;
            let ranks = self.actors.iter().enumerate().filter(|(_, actor)| !actor.finished && actor.wakes_ns <= now);
            let works = self.actors.iter().enumerate().filter(|(_, actor)| actor.due_ns.is_some_and(|due| due <= now));
            let mut choices: Vec<(usize, bool)> = ranks.map(|(number, _)| (number, false)).collect();
            choices.extend(works.map(|(number, _)| (number, true)));
            if choices.is_empty() {
                let wakes = self.actors.iter().filter(|actor| !actor.finished).map(|actor| actor.wakes_ns);
                let next = wakes.chain(self.actors.iter().filter_map(|actor| actor.due_ns)).min();
                self.now_ns = next.unwrap_or(now + 1);
                continue;
            }
            let (number, works) = choices[self.random.below(choices.len() as u64) as usize];
            if !works {
                return Choice::Rank(number);
            }
            let actor = &mut self.actors[number];
            actor.due_ns = None;
            if let (Some(background), Some(buffers)) = (actor.background.clone(), actor.buffers.take()) {
                self.working = Some(number);
                return Choice::Work(number, background, buffers);
            }
        }
    }
}

impl World {
    pub(crate) fn new(random: Random, slowness: &[u64], networks: Vec<Network>, faults: Faults, trace: Trace) -> Self {
        let actors = slowness.iter().map(|&slowness| Actor {
            finished: false,
            dead: false,
            wakes_ns: 0,
            slowness,
            idle_pauses: 0,
            background: None,
            due_ns: None,
            buffers: None,
        });
        let state = State {
            random,
            now_ns: 0,
            turns: 0,
            last_progress: 0,
            actors: actors.collect(),
            running: None,
            working: None,
            trace,
            coverage: Coverage::default(),
            networks,
            faults,
            violation: None,
        };
        let bells = slowness.iter().map(|_| Condvar::new()).collect();
        Self { state: Mutex::new(state), bells, ended: Condvar::new() }
    }

    /// Locks the state, even if the lock is poisoned: a panic of the product is caught and reported, and every change
    /// of the state is complete.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn into_state(self) -> State {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the background work that was drawn, then passes the baton to the next rank.
    fn pass_on(&self) {
        loop {
            let choice = self.state().choose();
            match choice {
                Choice::Work(rank, background, mut buffers) => {
                    background.step(&mut buffers);
                    let mut state = self.state();
                    state.working = None;
                    state.stir(rank as u32);
                    state.actors[rank].buffers = Some(buffers);
                }
                Choice::Rank(rank) => {
                    let mut state = self.state();
                    state.running = Some(rank);
                    drop(state);
                    self.bells[rank].notify_one();
                    return;
                }
                Choice::Nobody => {
                    self.state().running = None;
                    self.ended.notify_one();
                    return;
                }
            }
        }
    }

    fn await_turn(&self, rank: usize) {
        let mut state = self.state();
        while state.running != Some(rank) {
            state = self.bells[rank].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets other ranks run for at least `longest`. The time is longer if the rank is slow or has waited for long.
    pub(crate) fn pause(&self, rank: u32, longest: Duration) {
        let number = rank as usize;
        {
            let mut state = self.state();
            let jitter = state.random.below(20_000);
            let now = state.now_ns;
            let actor = &mut state.actors[number];
            let least = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(4_000);
            // Ranks that have waited for long sleep longer, since turns without events test nothing.
            let long = match actor.idle_pauses {
                0..8 => 1,
                8..70 => 6,
                70..140 => 20,
                140..200 => 100,
                _ => 1000,
            };
            let length = ((least * long + jitter) * actor.slowness).min(LONGEST_PAUSE_NS);
            actor.wakes_ns = now + if actor.dead { 0 } else { length };
        }
        self.pass_on();
        self.await_turn(number);
    }

    /// Delays an operation by `length` while other ranks run. Background work delays all ranks, since it runs within
    /// one turn.
    pub(crate) fn stall(&self, rank: u32, length: Duration) {
        let number = rank as usize;
        let length_ns = u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
        {
            let mut state = self.state();
            if state.working.is_some() {
                state.now_ns += length_ns;
                return;
            }
            let wakes_ns = state.now_ns + length_ns;
            state.actors[number].wakes_ns = wakes_ns;
        }
        self.pass_on();
        self.await_turn(number);
    }

    /// Gives another rank a turn at random times.
    pub(crate) fn maybe_pause(&self, rank: u32) {
        let mut state = self.state();
        if state.working.is_none() && state.random.one_in(8) {
            let length = Duration::from_nanos(state.random.below(5_000));
            drop(state);
            self.stall(rank, length);
        }
    }

    /// Returns the effect of the faults on a file operation of `rank`.
    pub(crate) fn judge(&self, rank: u32, step: &'static str, name: &str, is_write: bool) -> Verdict {
        let mut state = self.state();
        let state = &mut *state;
        state.stir(rank);
        state.progress();
        state.trace.note(&format!("{rank} {step} {name}"));
        if state.is_dead(rank) {
            return Verdict::Dead;
        }
        let verdict = state.faults.judge(&mut state.random, &mut state.coverage, rank, step, is_write);
        match &verdict {
            Verdict::Crash { who, .. } => {
                state.trace.note(&format!("crash of {who:?} before {step}"));
                state.kill(*who);
            }
            Verdict::Fail { kind, .. } => state.trace.note(&format!("{kind:?}")),
            Verdict::Stall(_) | Verdict::Go | Verdict::Dead => {}
        }
        verdict
    }

    /// Runs `program` for every rank. Returns the results, with `None` for a rank that panicked.
    pub(crate) fn run<T: Send>(&self, program: impl Fn(u32) -> T + Sync) -> Vec<Option<T>> {
        let ranks = self.bells.len();
        std::thread::scope(|scope| {
            let spawn = |rank: usize| {
                let program = &program;
                scope.spawn(move || {
                    self.await_turn(rank);
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| program(rank as u32)));
                    let mut state = self.state();
                    state.actors[rank].finished = true;
                    state.actors[rank].due_ns = None;
                    state.actors[rank].background = None;
                    state.working = None;
                    let result = result.map_err(|panic| {
                        let words = panic.downcast_ref::<String>().cloned();
                        let words = words.or_else(|| panic.downcast_ref::<&str>().map(|words| (*words).to_owned()));
                        state.blame(format!("panic on rank {rank}: {}", words.unwrap_or_default()));
                    });
                    drop(state);
                    self.pass_on();
                    result.ok()
                })
            };
            let threads: Vec<_> = (0..ranks).map(spawn).collect();
            self.pass_on();
            threads.into_iter().map(|thread| thread.join().ok().flatten()).collect()
        })
    }
}

/// The host of one rank.
#[derive(Debug)]
pub(crate) struct SimHost {
    world: Arc<World>,
    rank: u32,
    resources: Arc<ProcessResources>,
}

impl SimHost {
    pub(crate) fn new(world: &Arc<World>, rank: u32) -> Self {
        Self { world: Arc::clone(world), rank, resources: Arc::default() }
    }
}

/// Runs the remaining background work when the rank closes its dataset. Indexes have no work of their own then.
struct Running {
    world: Arc<World>,
    rank: usize,
    is_first: bool,
    _enrolment: Enrolment,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.is_first {
            return;
        }
        let mut state = self.world.state();
        let actor = &mut state.actors[self.rank];
        actor.due_ns = None;
        let (Some(background), Some(mut buffers)) = (actor.background.take(), actor.buffers.take()) else { return };
        let outer = state.working.replace(self.rank);
        drop(state);
        while background.step(&mut buffers) {}
        self.world.state().working = outer;
    }
}

impl Host for SimHost {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.state().now_ns)
    }

    fn pause(&self, longest: Duration, background: &Background, seen: u64) {
        if background.completions() == seen {
            self.world.state().actors[self.rank as usize].idle_pauses += 1;
            self.world.pause(self.rank, longest);
        }
    }

    fn resources(&self) -> Arc<ProcessResources> {
        Arc::clone(&self.resources)
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        let mut state = self.world.state();
        let actor = &mut state.actors[self.rank as usize];
        // The first dataset's handle runs the tasks of all datasets.
        let is_first = actor.background.is_none();
        if is_first {
            actor.background = Some(Arc::clone(background));
            actor.buffers = Some(Box::new(EncodeBuffers::new()));
        }
        drop(state);
        let (world, rank) = (Arc::clone(&self.world), self.rank as usize);
        Ok(Box::new(Running { world, rank, is_first, _enrolment: self.resources.enrol(background) }))
    }
}
