//! Tests of batches, with direct routes and with several hops.

use proptest::prelude::*;

use super::super::topology::Topology;
use super::*;

const ROW: usize = 64;

impl Outbox {
    /// Removes and returns the oldest batch, regardless of its quota.
    fn pop(&mut self) -> Option<Batch> {
        let batch = self.queue.pop_front();
        self.dequeued(batch)
    }
}

fn numbered_rows(count: usize) -> Vec<u8> {
    (0..count).flat_map(|row| (0..ROW).map(move |byte| (row * 7 + byte) as u8)).collect()
}

#[test]
fn small_batches_take_little_memory() {
    let budget = 1 << 20;
    let mut outbox = Outbox::new(0, ROW, 32 << 10, budget, 16, None);
    let destinations: Vec<u32> = (0..4096u32).map(|row| row % 16).collect();
    let rows = numbered_rows(destinations.len());
    // Records held back for the first table are routed together, in batches of a few rows.
    outbox.size_batches(rows.len() as u64, 16);
    outbox.push_all(&destinations, &rows, 1, 1);
    assert!(outbox.queue.len() > 100, "{}", outbox.queue.len());
    let resident = outbox.memory().resident_bytes;
    assert!(resident < budget, "{resident} bytes for {} of rows", rows.len());
    let found: Vec<u8> = std::iter::from_fn(|| outbox.pop()).flat_map(|batch| batch.rows(ROW).into_owned()).collect();
    assert_eq!(found.len() + outbox.rows() as usize * ROW, rows.len(), "no row is lost on the way");
}

/// Returns the outbox of rank 0, on three nodes with two ranks each. Rank 0 is the representative for node 2, and rank
/// 1 is the representative for node 1.
fn representative(row_bytes: usize) -> Outbox {
    let routes = Topology::from_nodes(&[0, 0, 1, 1, 2, 2]).routes(0);
    Outbox::new(0, row_bytes, 32 << 10, 1 << 20, 6, routes)
}

/// Removes the queued batches. Returns their next hops, channels, tables and rows.
fn drain(outbox: &mut Outbox, row_bytes: usize) -> Vec<(u32, Channel, u32, Vec<u8>)> {
    outbox.flush(1, 0);
    std::iter::from_fn(|| outbox.pop())
        .map(|batch| {
            let wire_bytes = wire_row_bytes(batch.channel, row_bytes);
            let (header, _) = DataHeader::read(&batch.message, wire_bytes).unwrap();
            assert_eq!((header.session, header.destination), (1, batch.to));
            (batch.to, batch.channel, header.table_version, batch.rows(row_bytes).into_owned())
        })
        .collect()
}

#[test]
fn rows_share_batches_by_next_hop_whatever_their_width() {
    for row_bytes in [4, 12, 16, 36, 60, 124, 128, 200] {
        let mut outbox = representative(row_bytes);
        outbox.size_batches(1 << 30, 6);
        let rows: Vec<u8> = (0..6).flat_map(|row| vec![row as u8 + 1; row_bytes]).collect();
        outbox.push_all(&[0, 1, 2, 3, 4, 5], &rows, 1, 0);
        assert_eq!(outbox.rows(), 6);
        let row = |number: usize| rows[number * row_bytes..][..row_bytes].to_vec();
        let expected = [
            (0, Channel::Data, 0, row(0)),
            (1, Channel::Data, 0, row(1)),
            (1, Channel::Outward, 0, [row(2), row(3)].concat()),
            (4, Channel::Across, 0, [row(4), row(5)].concat()),
        ];
        assert_eq!(drain(&mut outbox, row_bytes), expected, "rows of {row_bytes} bytes");
        assert!(outbox.is_empty());
    }
}

/// Returns a row that contains its number.
fn numbered(number: u32, row_bytes: usize) -> Vec<u8> {
    let mut row = number.to_le_bytes().to_vec();
    row.resize(row_bytes, 0xEE);
    row
}

fn place(number: u32, version: u32, receivers: u32) -> u32 {
    // A few rows move from version to version.
    ((number.wrapping_mul(0x9E37_79B9) >> 16).wrapping_add(version * 900) % 0x1_0000 * receivers) >> 16
}

proptest! {
    /// After a new table, every waiting row is in exactly one batch, for its new destination, and the batch carries the
    /// table's version. Nothing else has changed.
    #[test]
    fn what_waits_is_routed_by_the_new_table(
        row_bytes in prop::sample::select(vec![4usize, 12, 36, 64, 200]),
        hops in any::<bool>(),
        batch_bytes in 64usize..2000,
        others in 0u32..60,
        counts in prop::collection::vec(0u32..400, 1..5),
        credit in prop::collection::vec(any::<bool>(), 7),
    ) {
        let routes = if hops { Topology::from_nodes(&[0, 0, 1, 1, 2, 2]).routes(0) } else { None };
        let mut outbox = Outbox::new(0, row_bytes, batch_bytes, 1 << 20, 6, routes);
        let routes = outbox.routes.clone();
        outbox.size_batches(1 << 30, 6);
        if hops {
            // Rows from this node reach this rank only for node 2, and rows from node 2 only for this node.
            for (channel, first) in [(Channel::Outward, 4), (Channel::Across, 0)] {
                let row = |number: u32| [&(first + number % 2).to_le_bytes()[..], &numbered(1_000_000 * (first + 1) + number, row_bytes)].concat();
                outbox.forward(channel, &(0..others).flat_map(row).collect::<Vec<u8>>(), 1, (9, 1)).unwrap();
            }
        }
        let mut credit = credit.into_iter().cycle();
        let mut next = 0;
        for (version, count) in (1u32..).zip(counts) {
            let rows: Vec<u8> = (next..next + count).flat_map(|number| numbered(number, row_bytes)).collect();
            let destinations: Vec<u32> = (next..next + count).map(|number| place(number, version, 6)).collect();
            outbox.push_all(&destinations, &rows, 1, version);
            next += count;
            let waiting = outbox.rows();
            let routed = outbox.reroute(1, version + 1, |rows, stride, out| {
                let number = |row: &[u8]| u32::from_le_bytes(row[..4].try_into().unwrap());
                out.extend(rows.chunks(stride).map(|row| place(number(row), version + 1, 6)));
            });
            prop_assert_eq!(routed, waiting);
            prop_assert_eq!(outbox.rows(), waiting);
            let mut queued = [0; 3];
            outbox.queue.iter().for_each(|batch| queued[batch.quota as usize] += room(batch.channel));
            prop_assert_eq!(outbox.queued, queued);
            for (hop, &waiting) in outbox.waiting.iter().enumerate() {
                prop_assert_eq!(outbox.queue.iter().filter(|batch| batch.hop as usize == hop).count(), waiting as usize);
            }
            prop_assert_eq!(outbox.open.iter().filter(|open| !open.is_empty()).count(), outbox.open_batches);
            let mut check = Vec::new();
            for batch in &outbox.queue {
                let wire_bytes = wire_row_bytes(batch.channel, row_bytes);
                let (header, rows) = DataHeader::read(&batch.message, wire_bytes).unwrap();
                prop_assert_eq!((header.table_version, header.destination), (version + 1, batch.to));
                check.push((batch.hop as usize, rows.to_vec()));
            }
            for (hop, open) in outbox.open.iter().enumerate().filter(|(_, open)| !open.is_empty()) {
                check.push((hop, open[DATA_HEADER_BYTES..].to_vec()));
            }
            let mut seen = Vec::new();
            for (hop, rows) in check {
                let wire_bytes = wire_row_bytes(outbox.next_hop(hop).channel, row_bytes);
                prop_assert!(!rows.is_empty());
                for row in rows.chunks(wire_bytes) {
                    let (prefix, stored) = row.split_at(wire_bytes - row_bytes);
                    let number = u32::from_le_bytes(stored[..4].try_into().unwrap());
                    let to = place(number, version + 1, 6);
                    prop_assert_eq!(stored, &numbered(number, row_bytes)[..]);
                    prop_assert_eq!(hop, routes.as_ref().map_or(to as usize, |routes| routes.towards(to).unwrap()));
                    prop_assert!(prefix.is_empty() || prefix == to.to_le_bytes());
                    seen.push(number);
                }
            }
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len() as u64, waiting, "each once");
            // Some batches leave, others get no credit.
            outbox.offer(|_, _, message| if credit.next() == Some(true) { None } else { Some(message) });
        }
    }
}

/// Tables that move many records leave small remainders in batches. The remainders must not fill the queue.
#[test]
fn remains_of_batches_are_put_together() {
    let mut outbox = Outbox::new(0, ROW, 32 << 10, 1 << 20, 16, None);
    outbox.size_batches(1 << 30, 16);
    // Each table moves half of the records to arbitrary receivers.
    let receiver = |number: u32, version: u32| {
        let draw = number.wrapping_mul(64).wrapping_add((version + number % 2) / 2);
        draw.wrapping_mul(0x9E37_79B9).rotate_left(13).wrapping_mul(0x85EB_CA6B) >> 28
    };
    let numbers = 0..12_000;
    let rows: Vec<u8> = numbers.clone().flat_map(|number| numbered(number, ROW)).collect();
    let destinations: Vec<u32> = numbers.map(|number| receiver(number, 0)).collect();
    outbox.push_all(&destinations, &rows, 1, 1);
    let before = outbox.queue.len();
    assert!(before > 12, "{before}");
    for version in 1..40 {
        outbox.reroute(1, version + 1, |rows, stride, out| {
            let number = |row: &[u8]| u32::from_le_bytes(row[..4].try_into().unwrap());
            out.extend(rows.chunks(stride).map(|row| receiver(number(row), version)));
        });
        assert_eq!(outbox.rows(), 12_000);
        assert!(outbox.queue.len() <= 2 * before, "table {version}: {} batches", outbox.queue.len());
    }
}

fn addressed(records: &[(u32, u8)]) -> Vec<u8> {
    records.iter().flat_map(|&(to, byte)| [&to.to_le_bytes()[..], &[byte; ROW]].concat()).collect()
}

#[test]
fn batches_of_others_go_on_with_the_newest_table_that_any_record_knew() {
    let mut outbox = representative(ROW);
    outbox.size_batches(1 << 30, 6);
    outbox.forward(Channel::Outward, &addressed(&[(5, 1), (4, 2)]), 1, (8, 7)).unwrap();
    outbox.push(5, &[3; ROW], 1, 7);
    outbox.forward(Channel::Outward, &addressed(&[(4, 4)]), 1, (6, 7)).unwrap();
    outbox.forward(Channel::Across, &addressed(&[(1, 5), (0, 6)]), 1, (2, 7)).unwrap();
    let expected = [
        (0, Channel::Data, 2, vec![6; ROW]),
        (1, Channel::Data, 2, vec![5; ROW]),
        (4, Channel::Across, 8, [[1; ROW], [2; ROW], [3; ROW], [4; ROW]].concat()),
    ];
    assert_eq!(drain(&mut outbox, ROW), expected);
    outbox.forward(Channel::Outward, &addressed(&[(5, 1)]), 1, (1, 7)).unwrap();
    assert_eq!(drain(&mut outbox, ROW)[0].2, 1, "a batch that has left says nothing of the next one");
}

#[test]
fn records_that_would_have_to_go_back_are_refused() {
    let mut outbox = representative(ROW);
    // This rank does not represent node 1, a rank of this node needs no second hop, and rank 6 does not exist.
    for (channel, to) in [(Channel::Outward, 2), (Channel::Outward, 1), (Channel::Outward, 6), (Channel::Across, 4)] {
        assert!(outbox.forward(channel, &addressed(&[(to, 1)]), 1, (1, 1)).is_err(), "{channel:?} {to}");
    }
    let mut direct = Outbox::new(0, ROW, 32 << 10, 1 << 20, 6, None);
    assert!(direct.forward(Channel::Across, &addressed(&[(1, 1)]), 1, (1, 1)).is_err());
    assert!(!direct.takes_from(Channel::Across));
}

#[test]
fn neither_own_nor_others_records_keep_the_others_out() {
    let mut outbox = representative(ROW);
    while outbox.has_room() {
        outbox.push(5, &[1; ROW], 1, 1);
    }
    assert!(outbox.takes_from(Channel::Outward) && outbox.takes_from(Channel::Across));
    while outbox.takes_from(Channel::Outward) {
        outbox.forward(Channel::Outward, &addressed(&[(5, 2)]), 1, (1, 1)).unwrap();
    }
    assert!(outbox.takes_from(Channel::Across));
    while outbox.takes_from(Channel::Across) {
        outbox.forward(Channel::Across, &addressed(&[(1, 3)]), 1, (1, 1)).unwrap();
    }
    // Own batches are spilled until there is room again. The count of waiting rows is exact.
    let waiting = outbox.rows();
    let spilled = outbox.pop_own().unwrap().rows(ROW).len() / ROW;
    assert!(outbox.has_room());
    assert_eq!(outbox.rows() + spilled as u64, waiting);
    let left: usize = drain(&mut outbox, ROW).iter().map(|(.., rows)| rows.len() / ROW).sum();
    assert_eq!(left + spilled, waiting as usize);
    assert!(outbox.is_empty() && outbox.takes_from(Channel::Outward) && outbox.takes_from(Channel::Across));
}

#[test]
fn open_batches_keep_within_the_budget_of_the_topology() {
    // 32 nodes of 32 ranks: a rank may have (32 + 1) times 32 KiB open, but no more than half of the budget.
    let labels: Vec<u32> = (0..1024).map(|rank| rank / 32).collect();
    let routes = Topology::from_nodes(&labels).routes(1);
    let budget = 4 << 20;
    let mut outbox = Outbox::new(1, ROW, 32 << 10, budget, 1024, routes);
    outbox.size_batches(1 << 40, 1024);
    let destinations: Vec<u32> = (0..1024).collect();
    let rows = numbered_rows(1024);
    let mut peak = BatchMemory::default();
    for _ in 0..200 {
        outbox.push_all(&destinations, &rows, 1, 1);
        peak = peak.peak(outbox.memory());
        while let Some(batch) = outbox.pop() {
            outbox.recycle(batch.message);
        }
    }
    // Batches for the rank itself and 31 neighbours, for 30 of them as representatives, and for one rank of another
    // node.
    assert_eq!(peak.open_batches, 32 + 30 + 1);
    let margins = peak.open_batches * outbox.message_bytes(0);
    assert!(peak.open_bytes <= 33 * (32 << 10) + margins, "{} bytes", peak.open_bytes);
    assert!(peak.open_bytes > 20 * (32 << 10), "{} bytes", peak.open_bytes);
}

/// Release builds report a broken invariant; debug builds panic where it breaks.
#[test]
fn a_row_without_a_route_is_an_internal_error() {
    let mut outbox = representative(ROW);
    let rows = numbered_rows(3);
    outbox.push_all(&[1, 4, 5], &rows, 1, 1);
    assert!(outbox.check().is_ok());
    let push = || {
        outbox.push_all(&[1, 6, 5], &rows, 1, 1);
        outbox.check()
    };
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(push)) {
        Ok(checked) => assert!(matches!(checked, Err(MessageError::Internal { .. })), "{checked:?}"),
        Err(panic) if cfg!(debug_assertions) => drop(panic),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
