//! Tests of epochs that begin with the last one's distribution: one engine, whose messages a test exchanges by hand.

use std::collections::VecDeque;
use std::sync::Arc;

use super::*;
use crate::format::RunKind;
use crate::partition::{Atom, PointSample, Sketch};
use crate::random::Random;
use crate::schema::{Column, ColumnView, DataType, Schema};
use crate::shuffle::message::{Control, Report};
use crate::shuffle::round::Compared;
use crate::shuffle::{Channel, EngineOptions, Sent, Transport};

/// Number of keys that both ranks appended in the last epoch, from 0 on.
const BEFORE: u64 = 10_000;

/// The messages from the other rank, and those sent to it.
#[derive(Default)]
struct Peer {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Control>,
}

impl Transport for Peer {
    fn send(&mut self, _to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        if channel == Channel::Control {
            self.sent.push(Control::decode(&message).unwrap().1);
        }
        Sent::Accepted
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        if channel == Channel::Control { self.received.pop_front() } else { None }
    }
}

impl Peer {
    /// Delivers `messages` to `engine`.
    fn exchange(&mut self, engine: &mut Engine, messages: &[Control]) -> Result<bool, MessageError> {
        self.received.extend(messages.iter().map(|message| message.encode(1)));
        engine.exchange(self, &mut |_: RunKind, _: &[u8]| ())
    }
}

fn pivots(keys: &[u64]) -> Pivots {
    let mut sketch = Sketch::new(1 << 14, 1);
    sketch.observe(keys);
    sketch.summarize(256, 0.5)
}

fn encoded(pivots: &Pivots) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    pivots.encode(&mut bytes);
    Some(bytes)
}

/// Returns rank `rank` of two after an epoch of `rows` records, half of them its own.
fn after_an_epoch(rank: u32, rows: u64, change: impl Fn(&mut EngineOptions)) -> Engine {
    let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap());
    let mut options = EngineOptions::new(rank, 2);
    change(&mut options);
    let mut engine = Engine::new(options, schema);
    let keys = pivots(&(0..BEFORE).collect::<Vec<u64>>());
    let profile = KeyProfile::new(&keys);
    let keys = keys.scaled(rows as f64 / BEFORE as f64);
    let whole = (rank == 0).then_some(Whole { rows, contributors: 2, range: (0, BEFORE - 1), keys });
    engine.last = Some(LastEpoch { profile, own_keys: rows / 2, whole });
    engine.begin(Vec::new());
    engine
}

/// Returns rank 0, which has begun an epoch with a table.
fn root(rows: u64) -> (Engine, Peer) {
    let (mut engine, mut peer) = (after_an_epoch(0, rows, |_| ()), Peer::default());
    peer.exchange(&mut engine, &[Control::Ready]).unwrap();
    assert!(engine.is_open() && engine.table_version() == 1);
    (engine, peer)
}

/// Returns the `Go` with a table that divides `keys` evenly.
fn go(keys: &[u64]) -> Control {
    let mut table = Vec::new();
    even_table(1, 2, &[pivots(keys)]).encode(&mut table);
    let first = Some(FirstTable { interval_rows: 1000, range: (0, u64::MAX), table });
    Control::Go { announcement: Vec::new(), placement: (2, None), frame: None, first }
}

fn append(engine: &mut Engine, keys: &[u32]) {
    let bytes: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes()).collect();
    let columns = [ColumnView::new(&bytes, 4, keys.len(), DataType::U32).unwrap()];
    let mut append = engine.append(&columns).unwrap();
    engine.advance(&mut append);
}

fn shuffled(keys: std::ops::Range<u32>) -> Vec<u32> {
    let mut random = Random::new(3);
    let mut all: Vec<u32> = keys.collect();
    for last in (1..all.len()).rev() {
        all.swap(last, (random.fraction() * (last + 1) as f64) as usize);
    }
    all
}

fn report(version: u32, pivots: Option<Vec<u8>>) -> Report {
    Report {
        version,
        contributors: 1,
        seen: 0,
        outside: 0,
        urgent: false,
        compared: Compared::default(),
        range: EMPTY_RANGE,
        backlog: 0,
        loads: Vec::new(),
        pivots,
        points: PointSample::default(),
    }
}

/// Returns how many of the ordinals the table in force sends to partition 0.
fn below_the_cut(engine: &Engine, keys: impl Iterator<Item = u32>) -> usize {
    let table = &engine.session.installed.as_ref().unwrap().table;
    keys.filter(|&key| table.destination(u64::from(key), 0) == 0).count()
}

/// A sketch that sampled keys at the last epoch's rate would have none of the first few hundred.
#[test]
fn the_first_keys_suffice_for_a_table_after_a_large_epoch() {
    let (mut engine, mut peer) = root(1 << 40);
    append(&mut engine, &shuffled(5_000_000..5_001_000));
    assert!(engine.is_negotiating(), "the keys differ");
    peer.exchange(&mut engine, &[]).unwrap();
    assert!(peer.sent.contains(&Control::Begin { version: 2, with_pivots: true }));
    peer.exchange(&mut engine, &[Control::Report(report(2, encoded(&Pivots::default())))]).unwrap();
    assert_eq!(engine.table_version(), 2);
    let below = below_the_cut(&engine, 5_000_000..5_001_000);
    assert!((480..=520).contains(&below), "{below} of 1,000");
}

/// One rank of many whose keys differ does not discard the last epoch for all.
#[test]
fn few_differing_ranks_keep_the_last_epoch() {
    for (compared, discards) in [
        (Compared { agreeing: 1 << 20, in_order: 0, differing: 1 << 10 }, false),
        (Compared { agreeing: 1 << 20, in_order: 1 << 20, differing: 1 << 20 }, true),
        (Compared { agreeing: 0, in_order: 0, differing: 1 }, true),
    ] {
        let (mut engine, mut peer) = root(1 << 20);
        let request = Control::Request { version: 1, urgent: true };
        let new = pivots(&(6_000_000..6_001_000).collect::<Vec<u64>>());
        let report = Report { compared, urgent: true, seen: 1000, ..report(2, encoded(&new)) };
        peer.exchange(&mut engine, &[request, Control::Report(report)]).unwrap();
        assert_eq!(engine.table_version(), 2);
        assert_eq!(engine.session.negotiation.differs_from_last_epoch, discards, "{compared:?}");
        assert_eq!(engine.expected_total(1000).is_some(), engine.last.is_some());
        let below = below_the_cut(&engine, 0..BEFORE as u32);
        assert_eq!(below == BEFORE as usize, discards, "{compared:?}: {below} keys of the last epoch");
    }
}

/// Many keys beyond the last epoch's range discard it, although no rank held records back.
#[test]
fn many_keys_outside_of_the_last_range_discard_it() {
    for (outside, discards) in [(50, false), (500, true)] {
        let (mut engine, mut peer) = root(1 << 20);
        let request = Control::Request { version: 1, urgent: false };
        let loads = Report { outside, seen: 1000, loads: vec![(1, 1000)], ..report(2, None) };
        peer.exchange(&mut engine, &[request, Control::Report(loads)]).unwrap();
        assert!(peer.sent.contains(&Control::Begin { version: 2, with_pivots: true }), "{outside} are too many");
        let new = pivots(&(6_000_000..6_001_000).collect::<Vec<u64>>());
        let keys = Report { outside, seen: 1000, ..report(2, encoded(&new)) };
        peer.exchange(&mut engine, &[Control::Report(keys)]).unwrap();
        assert_eq!(engine.table_version(), 2);
        assert_eq!(below_the_cut(&engine, 0..BEFORE as u32) == BEFORE as usize, discards, "{outside}");
        let known = if discards { 1000 } else { (1 << 20) + 1000 };
        assert_eq!(engine.session.negotiation.planned.keys, known);
    }
}

/// Sums of a faulty rank's numbers neither overflow nor stop this rank.
#[test]
fn numbers_of_any_size_are_refused_or_limited() {
    let (mut engine, mut peer) = root(1 << 20);
    for version in [2, u32::MAX] {
        let (mut engine, mut peer) = root(1 << 20);
        assert!(peer.exchange(&mut engine, &[Control::Request { version, urgent: true }]).is_err());
    }
    let huge = |version, pivots| Report {
        contributors: u32::MAX,
        seen: u64::MAX,
        outside: u64::MAX,
        compared: Compared { agreeing: u64::MAX, in_order: u64::MAX, differing: u64::MAX },
        range: (0, u64::MAX),
        backlog: u64::MAX,
        loads: vec![(0, u64::MAX), (1, u64::MAX), (u32::MAX, u64::MAX)],
        ..report(version, pivots)
    };
    append(&mut engine, &shuffled(0..BEFORE as u32)[..1000]);
    let request = Control::Request { version: 1, urgent: false };
    peer.exchange(&mut engine, &[request, Control::Report(huge(2, None))]).unwrap();
    assert!(peer.sent.contains(&Control::Begin { version: 2, with_pivots: true }));
    let mass: u64 = 1 << 45;
    let heavy = pivots(&[7; 100]).scaled(mass as f64);
    assert!(matches!(heavy.atoms(), [Atom { ordinal: 7, .. }]));
    peer.exchange(&mut engine, &[Control::Report(huge(2, encoded(&heavy)))]).unwrap();
    assert_eq!(engine.table_version(), 2);
}

/// A rank that has sent all of its records still tells the planner of its last keys.
#[test]
fn a_settled_rank_sends_its_last_keys() {
    let (mut engine, mut peer) = (after_an_epoch(1, BEFORE, |_| ()), Peer::default());
    peer.exchange(&mut engine, &[go(&(0..BEFORE).collect::<Vec<u64>>())]).unwrap();
    append(&mut engine, &shuffled(0..BEFORE as u32)[..700]);
    assert!(engine.is_routing());
    engine.end();
    peer.exchange(&mut engine, &[]).unwrap();
    assert!(matches!(peer.sent.last(), Some(Control::Settled { originated: 700, .. })));
    peer.exchange(&mut engine, &[Control::Begin { version: 2, with_pivots: true }]).unwrap();
    let Some(Control::Report(Report { pivots: Some(sent), .. })) = peer.sent.last() else { panic!("no report") };
    assert_eq!(Pivots::decode(sent).unwrap().mass(), 700);
}

/// Rank 0 alone is told to forget the last epoch.
#[test]
fn an_epoch_without_a_first_table_forgets_the_last_one() {
    let (mut engine, mut peer) = (after_an_epoch(1, BEFORE, |_| ()), Peer::default());
    peer.exchange(
        &mut engine,
        &[Control::Go { announcement: Vec::new(), placement: (2, None), frame: None, first: None }],
    )
    .unwrap();
    assert!(engine.is_open() && engine.last.is_none());
}

/// All ranks keep the prior epoch if no key of this one is known.
#[test]
fn an_epoch_without_keys_keeps_the_last_one() {
    for rows in [0, 50] {
        let (mut engine, mut peer) = (after_an_epoch(1, BEFORE, |_| ()), Peer::default());
        peer.exchange(&mut engine, &[go(&(0..BEFORE).collect::<Vec<u64>>())]).unwrap();
        engine.end();
        peer.exchange(&mut engine, &[Control::Probe { round: 1 }, Control::Closed { rows }]).unwrap();
        engine.sealed(Ok(Vec::new()));
        peer.exchange(&mut engine, &[Control::Outcome(Ok(Vec::new()))]).unwrap();
        assert_eq!(engine.own_keys_before(), if rows == 0 { BEFORE / 2 } else { 0 });
    }
}

#[test]
fn a_rank_that_may_hold_nothing_takes_records() {
    let (mut engine, mut peer) = (after_an_epoch(1, BEFORE, |options| options.hold_bytes = 0), Peer::default());
    peer.exchange(
        &mut engine,
        &[Control::Go { announcement: Vec::new(), placement: (2, None), frame: None, first: None }],
    )
    .unwrap();
    append(&mut engine, &[1, 2, 3]);
    assert!(engine.metrics().originated == 3 && engine.is_negotiating());
}
