//! Distributes an epoch's files over a job of any size.

use turbidite::partition::{block_records, sample_order};

/// A contiguous part of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Index of the file within the epoch.
    pub file: usize,
    /// Index of the first record within the file.
    pub first: u64,
    /// Number of records.
    pub records: u64,
}

/// Returns the slices of each of `ranks` ranks. `file_records` holds the number of records of each file.
///
/// With as many ranks as files, each rank reads one file. Otherwise the files form one sequence of records, in the
/// order of the ranks that wrote them. This sequence is divided into contiguous parts whose lengths differ by at most
/// one record.
pub(crate) fn slices(file_records: &[u64], ranks: u32) -> Vec<Vec<Slice>> {
    if file_records.len() == ranks as usize {
        let whole = |(file, &records): (usize, &u64)| vec![Slice { file, first: 0, records }];
        return file_records.iter().enumerate().map(whole).collect();
    }
    let total: u128 = file_records.iter().map(|&records| u128::from(records)).sum();
    // The result is at most the total number of records, which fits u64.
    let boundary = |rank: u32| (total * u128::from(rank) / u128::from(ranks.max(1))) as u64;
    let (mut file, mut used) = (0, 0);
    let share = |rank: u32| {
        let mut wanted = boundary(rank + 1) - boundary(rank);
        let mut pieces = Vec::new();
        while wanted > 0 {
            let records = wanted.min(file_records[file] - used);
            if records > 0 {
                pieces.push(Slice { file, first: used, records });
            }
            (wanted, used) = (wanted - records, used + records);
            if used == file_records[file] {
                (file, used) = (file + 1, 0);
            }
        }
        pieces
    };
    (0..ranks).map(share).collect()
}

/// Splits a rank's share into blocks of at most `limit` records. Every prefix of the returned order is a sample of the
/// share.
pub(crate) fn blocks(share: &[Slice], limit: u64) -> Vec<Slice> {
    let total: u64 = share.iter().map(|slice| slice.records).sum();
    let length = block_records(total, limit);
    let cut = |slice: &Slice| {
        let Slice { file, first, records } = *slice;
        (0..records).step_by(length as usize).map(move |start| Slice {
            file,
            first: first + start,
            records: length.min(records - start),
        })
    };
    // The seed differs between ranks, since no two shares begin at the same record of the same file.
    let seed = share.first().map_or(0, |slice| (slice.file as u64).rotate_left(32) ^ slice.first);
    scattered(&share.iter().flat_map(cut).collect::<Vec<_>>(), seed)
}

/// Returns the elements in a pseudorandom order, of which every prefix is a sample.
pub(crate) fn scattered<T: Copy>(in_order: &[T], seed: u64) -> Vec<T> {
    sample_order(in_order.len(), seed).into_iter().map(|place| in_order[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the shares cover every record of every file exactly once, in order, in parts of nearly equal length.
    fn check(file_records: &[u64], ranks: u32) {
        let shares = slices(file_records, ranks);
        assert_eq!(shares.len(), ranks as usize);
        let flat: Vec<_> = shares
            .iter()
            .flatten()
            .flat_map(|slice| (slice.first..slice.first + slice.records).map(|record| (slice.file, record)))
            .collect();
        let expected: Vec<_> = file_records
            .iter()
            .enumerate()
            .flat_map(|(file, &records)| (0..records).map(move |record| (file, record)))
            .collect();
        assert_eq!(flat, expected, "{file_records:?} over {ranks}");
        if file_records.len() != ranks as usize {
            let lengths = shares.iter().map(|share| share.iter().map(|slice| slice.records).sum::<u64>());
            let (least, most) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
            assert!(most - least <= 1, "{least}..{most}");
        }
    }

    #[test]
    fn every_record_has_one_rank() {
        for ranks in [1, 2, 3, 4, 5, 16, 61] {
            check(&[10, 0, 7, 100], ranks);
            check(&[0, 0, 0], ranks);
            check(&[1], ranks);
            check(&[], ranks);
        }
    }

    #[test]
    fn as_many_ranks_as_files_keep_their_files() {
        let shares = slices(&[5, 0, 9], 3);
        assert_eq!(shares[0], [Slice { file: 0, first: 0, records: 5 }]);
        assert_eq!(shares[2], [Slice { file: 2, first: 0, records: 9 }]);
    }

    #[test]
    fn blocks_cover_a_share_once() {
        for (lengths, limit) in
            [(&[10u64, 0, 7][..], 16384), (&[1], 5), (&[], 5), (&[0], 5), (&[100_000, 3], 1000), (&[777], 1)]
        {
            let slice = |(file, &records): (usize, &u64)| Slice { file, first: 5, records };
            let share: Vec<Slice> = lengths.iter().enumerate().map(slice).collect();
            let mut seen: Vec<(usize, u64)> = Vec::new();
            for block in blocks(&share, limit) {
                assert!(block.records > 0 && block.records <= limit);
                seen.extend((block.first..block.first + block.records).map(|record| (block.file, record)));
            }
            seen.sort_unstable();
            let all = share.iter().flat_map(|slice| (5..5 + slice.records).map(|record| (slice.file, record)));
            assert_eq!(seen, all.collect::<Vec<_>>(), "{lengths:?} {limit}");
        }
    }

    #[test]
    fn any_beginning_is_a_sample() {
        let order = blocks(&[Slice { file: 0, first: 0, records: 1 << 20 }], 16384);
        // The first sixteen blocks include about four from each quarter of the file.
        for quarter in 0..4u64 {
            let inside = order[..16].iter().filter(|block| block.first >> 18 == quarter).count();
            assert!((3..=5).contains(&inside), "{inside} in quarter {quarter}");
        }
    }
}
