//! Shares: every row once, for any number of shares, divided evenly before the predicate.

use proptest::prelude::*;

use super::distribution::{KEY_TYPES, hostile_epochs};
use super::*;
use crate::query::Piece;

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn shares_return_every_row_once(
        epochs in hostile_epochs(),
        key_type in prop::sample::select(KEY_TYPES.to_vec()),
        query in prop::sample::select(vec![None, Some("b >= 0"), Some("energy > 2"), Some("energy > 2 OR a < 1"), Some("false")]),
        ordered in any::<bool>(),
        count in prop_oneof![1u64..9, Just(1000)],
    ) {
        let fixture = Fixture::new(key_type, 16, 2);
        epochs.iter().for_each(|epoch| { fixture.write(epoch); });
        let dataset = fixture.open();
        let query = query.map_or_else(Query::new, |filter| Query::new().filter(filter));
        let expected = rows_of(&dataset, &query);
        let (mut found, mut sizes, mut counted) = (Vec::new(), Vec::new(), 0);
        for index in 0..count {
            let pieces = dataset.share(&query, index, count).unwrap();
            prop_assert!(pieces.windows(2).all(|pair| pair[0].epoch() < pair[1].epoch()), "a piece for each epoch");
            sizes.push(pieces.iter().map(Piece::rows_most).sum::<u64>());
            for piece in pieces {
                let sent: Piece = serde_json::from_str(&serde_json::to_string(&piece).unwrap()).unwrap();
                prop_assert_eq!(&sent, &piece);
                let piece = query.clone().piece(sent).ordered(ordered);
                let rows = rows_of(&dataset, &piece);
                counted += dataset.count(&piece).unwrap().0;
                let explained = &dataset.explain(&piece).unwrap().epochs[0];
                prop_assert!((explained.rows_least..=explained.rows_most).contains(&(rows.len() as u64)));
                found.extend(rows);
            }
        }
        let in_order = |rows: &[(u64, Record)]| {
            let mut ids: Vec<(u64, u64)> = rows.iter().map(|(epoch, record)| (*epoch, record.id)).collect();
            ids.sort_unstable();
            ids
        };
        prop_assert_eq!(in_order(&found), in_order(&expected));
        prop_assert_eq!(counted, expected.len() as u64);
        if !ordered {
            prop_assert_eq!(found, expected, "shares are contiguous");
        }
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1, "{sizes:?}");
    }
}

#[test]
fn a_share_reads_its_rows_only() {
    let fixture = Fixture::new(DataType::F32, 256, 1);
    fixture.write(&partitioned(1, 2, 1, 30_000));
    let dataset = fixture.open();
    let bytes = |query: &Query| {
        let mut stream = dataset.run(query).unwrap();
        stream.by_ref().for_each(|batch| drop(batch.unwrap()));
        stream.metrics().bytes_read
    };
    let whole = bytes(&Query::new());
    let share = |index| {
        let [piece] = <[Piece; 1]>::try_from(dataset.share(&Query::new(), index, 7).unwrap()).unwrap();
        assert_eq!(piece.rows_most(), 60_000 * (index + 1) / 7 - 60_000 * index / 7);
        bytes(&Query::new().piece(piece))
    };
    let shares: u64 = (0..7).map(share).sum();
    // Pages at the cuts are read for both shares.
    assert!(shares >= whole && shares < whole + whole * 5 / 100, "{shares} of {whole}");
}

#[test]
fn shares_that_do_not_exist_are_refused() {
    let fixture = Fixture::new(DataType::F32, 16, 1);
    fixture.write(&partitioned(1, 1, 1, 10));
    let dataset = fixture.open();
    let refused = |query: &Query, index, count| dataset.share(query, index, count).unwrap_err().to_string();
    let all = Query::new();
    assert_eq!(refused(&all, 3, 3), "share: there is no share 3 of 3; shares are counted from 0");
    assert_eq!(refused(&all, 0, 0), "share: there is no share 0 of 0; shares are counted from 0");
    assert_eq!(refused(&all.clone().limit(5), 0, 2), "share: cannot be made of a query with a limit");
    let piece = dataset.share(&all, 0, 1).unwrap().remove(0);
    assert_eq!(refused(&all.clone().piece(piece.clone()), 0, 2), "share: cannot be made of a piece");
    fixture.write(&partitioned(1, 1, 1, 11));
    let replaced = dataset.run(&all.piece(piece)).unwrap().find_map(Result::err).unwrap();
    assert!(matches!(replaced, crate::Error::EpochReplaced { epoch: 1, .. }), "{replaced}");
    // No number of shares overflows: the last one has the last row.
    let last = dataset.share(&Query::new(), u64::MAX - 1, u64::MAX).unwrap();
    assert_eq!(last.iter().map(Piece::rows_most).sum::<u64>(), 1);
}
