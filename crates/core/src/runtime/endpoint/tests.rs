//! Two endpoints, driven by hand.

use std::collections::VecDeque;
use std::path::Path;

use uuid::Uuid;

use super::*;
use crate::format::{PartId, PartOptions, RunKind, scan_seals};
use crate::schema::{Column, ColumnView, DataType};
use crate::shuffle::{Channel, EngineOptions, Sent};
use crate::storage::{MemoryStorage, Storage};

const TIMEOUTS: Timeouts = Timeouts { credit: Duration::from_secs(10), table: Duration::ZERO };

/// The messages sent to each of two ranks, and the number of the rank that polls.
#[derive(Default)]
struct Post {
    queues: [VecDeque<(Channel, Vec<u8>)>; 2],
    rank: usize,
}

impl Transport for Post {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        self.queues[to as usize].push_back((channel, message));
        Sent::Accepted
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        let queue = &mut self.queues[self.rank];
        let place = queue.iter().position(|(of, _)| *of == channel)?;
        queue.remove(place).map(|(_, message)| message)
    }
}

fn drive(endpoints: &mut [Endpoint; 2], post: &mut Post) {
    for _ in 0..20 {
        for (rank, endpoint) in endpoints.iter_mut().enumerate() {
            post.rank = rank;
            endpoint.process_messages(post).unwrap();
            while let Some((factory, task)) = endpoint.next_task() {
                endpoint.complete(factory.execute(task, &mut Default::default()));
            }
            endpoint.report_when_finished();
        }
    }
}

/// Appends keys on rank 0.
fn append(endpoints: &mut [Endpoint; 2], post: &mut Post, keys: impl Iterator<Item = u32>) {
    let bytes: Vec<u8> = keys.flat_map(u32::to_le_bytes).collect();
    let views = [ColumnView::new(&bytes, 4, bytes.len() / 4, DataType::U32).unwrap()];
    let mut append = endpoints[0].engine.append(&views).unwrap();
    while endpoints[0].advance(&mut append) {
        drive(endpoints, post);
    }
    assert!(append.is_done());
}

/// A rank may be the last to open an epoch, after the others have negotiated a table. Found by a test of the preload
/// library: after the second table, the run had only that table's bounds, and `verify` reported keys as corrupt.
#[test]
fn a_table_that_is_there_before_the_writer_counts() {
    let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap());
    let memory = Arc::new(MemtableMemory::default());
    let mut endpoints = [0, 1].map(|rank| {
        let engine = Engine::new(EngineOptions::new(rank, 2), Arc::clone(&schema));
        let mut endpoint = Endpoint::new(engine, Arc::clone(&schema), Arc::clone(&memory), TIMEOUTS);
        // Nothing is to be committed.
        endpoint.hold_commits();
        endpoint
    });
    let storage = MemoryStorage::new();
    let factory = Arc::new(PartFactory {
        storage: Arc::new(storage.clone()),
        directory: "/epoch".into(),
        schema: Arc::clone(&schema),
        options: PartOptions::default(),
        identity: PartIdentity { dataset: Uuid::nil(), commit: Uuid::nil(), epoch: 0 },
        taps: Vec::new(),
    });
    storage.create_dir_all(Path::new("/epoch")).unwrap();
    let mut post = Post::default();
    let equip = |endpoint: &mut Endpoint, rank| {
        endpoint.store(crate::runtime::WriteOptions::new(2).writer(rank), Arc::clone(&factory), None);
    };
    endpoints.iter_mut().for_each(|endpoint| endpoint.begin(Vec::new()));
    drive(&mut endpoints, &mut post);
    equip(&mut endpoints[0], 0);
    append(&mut endpoints, &mut post, 0..4096);
    let first = endpoints[1].engine.bounds().expect("a table is in force before the rank has a writer");
    equip(&mut endpoints[1], 1);
    drive(&mut endpoints, &mut post);
    append(&mut endpoints, &mut post, 100_000..104_096);
    endpoints[0].engine.request_renegotiation();
    drive(&mut endpoints, &mut post);
    let second = endpoints[1].engine.bounds().expect("a table is in force");
    assert!(first.0.compare(second.0).is_some_and(|order| order.is_lt()), "{first:?} {second:?}");
    endpoints.iter_mut().for_each(|endpoint| endpoint.engine.end());
    drive(&mut endpoints, &mut post);
    endpoints[0].engine.idle();
    drive(&mut endpoints, &mut post);
    let path = factory.directory.join(PartId { rank: 1, roll: 0 }.file_name());
    let runs = scan_seals(&*storage.open(&path).unwrap(), &path, &schema).unwrap();
    let bounds: Vec<_> = runs.iter().filter(|run| run.kind == RunKind::Regular).map(|run| run.bounds).collect();
    assert_eq!(bounds.first().and_then(|bounds| bounds.map(|(low, _)| low)), Some(first.0), "{runs:?}");
}

/// Other ranks may lack a message of it.
#[test]
fn an_endpoint_that_panicked_outside_of_a_session_exchanges_no_more() {
    let schema = Arc::new(Schema::new(vec![Column::new("key", DataType::U32)], "key").unwrap());
    let engine = Engine::new(EngineOptions::new(0, 2), Arc::clone(&schema));
    let mut endpoint = Endpoint::new(engine, schema, Arc::new(MemtableMemory::default()), TIMEOUTS);
    assert!(!endpoint.process_messages(&mut Post::default()).unwrap());
    endpoint.object_to_panic();
    let error = endpoint.process_messages(&mut Post::default()).unwrap_err();
    assert!(error.to_string().starts_with("internal error: a thread panicked while it drove rank 0;"), "{error}");
}
