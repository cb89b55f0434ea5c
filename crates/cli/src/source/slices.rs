//! Spreading the files of an epoch over a job of any size.

use turbidite::partition::{block_records, sample_order};

/// A contiguous piece of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Which file of the epoch.
    pub file: usize,
    /// Its first record.
    pub first: u64,
    /// How many.
    pub records: u64,
}

/// The share of each of `ranks` ranks in files of these lengths.
///
/// As many ranks as files: each reads its own file, as it was written. Otherwise the files are taken as one sequence, in
/// the order of the ranks that wrote them, and cut into contiguous pieces whose lengths differ by one record at most.
pub(crate) fn slices(file_records: &[u64], ranks: u32) -> Vec<Vec<Slice>> {
    if file_records.len() == ranks as usize {
        let whole = |(file, &records): (usize, &u64)| vec![Slice { file, first: 0, records }];
        return file_records.iter().enumerate().map(whole).collect();
    }
    let total: u128 = file_records.iter().map(|&records| u128::from(records)).sum();
    // At most the total, which is a sum of file lengths, so it fits u64 again.
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

/// Cuts a rank's share into blocks of at most `limit` records and puts them into an order in which any beginning is a
/// sample of the whole.
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
    // No two ranks begin at the same place of the same file.
    let seed = share.first().map_or(0, |slice| (slice.file as u64).rotate_left(32) ^ slice.first);
    scattered(&share.iter().flat_map(cut).collect::<Vec<_>>(), seed)
}

/// All pieces of a rank's share, in an order of its own.
fn scattered<T: Copy>(in_order: &[T], seed: u64) -> Vec<T> {
    sample_order(in_order.len(), seed).into_iter().map(|place| in_order[place]).collect()
}

/// A piece of a file that can only be read from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowGroup {
    /// Which file of the epoch.
    pub file: usize,
    /// Which row group of the file.
    pub index: usize,
    /// The record it begins with, counted over the file.
    pub first: u64,
    /// How many records it has.
    pub records: u64,
}

/// The share of each of `ranks` ranks in files of these row groups, in an order in which any beginning is a sample of the
/// whole, as far as whole row groups allow.
///
/// As many ranks as files: each reads its own file. Otherwise the row groups of all files are one sequence, and each goes
/// to the rank in whose even share of the records its middle lies: a row group is decoded once, by one rank, so shares
/// are only as even as row groups are small.
pub(crate) fn row_groups(files: &[&[u64]], ranks: u32) -> Vec<Vec<RowGroup>> {
    let mut shares: Vec<Vec<RowGroup>> = (0..ranks).map(|_| Vec::new()).collect();
    let total: u128 = files.iter().flat_map(|groups| groups.iter()).map(|&records| u128::from(records)).sum();
    let mut before = 0u128;
    for (file, groups) in files.iter().enumerate() {
        let mut first = 0;
        for (index, &records) in groups.iter().enumerate() {
            let middle = before + u128::from(records) / 2;
            let by_middle = (middle * u128::from(ranks)).checked_div(total).unwrap_or(0) as usize;
            let rank = if files.len() == shares.len() { file } else { by_middle };
            if records > 0
                && let Some(share) = shares.get_mut(rank)
            {
                share.push(RowGroup { file, index, first, records });
            }
            before += u128::from(records);
            first += records;
        }
    }
    (0..).zip(&shares).map(|(rank, share)| scattered(share, rank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every record of every file exactly once, in order, in pieces of nearly the same length.
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
    fn every_row_group_has_one_rank_and_shares_are_even() {
        for files in [&[&[100u64, 100, 100, 40][..], &[], &[0, 100]][..], &[&[7]], &[&[]], &[&[0, 0]], &[&[50; 64]]] {
            for ranks in [1u32, 2, 3, 5, 16] {
                let shares = row_groups(files, ranks);
                assert_eq!(shares.len(), ranks as usize);
                let mut seen: Vec<(usize, usize, u64, u64)> =
                    shares.iter().flatten().map(|one| (one.file, one.index, one.first, one.records)).collect();
                seen.sort_unstable();
                let mut expected = Vec::new();
                for (file, groups) in files.iter().enumerate() {
                    let mut first = 0;
                    for (index, records) in groups.iter().enumerate() {
                        expected.extend((*records > 0).then_some((file, index, first, *records)));
                        first += records;
                    }
                }
                assert_eq!(seen, expected, "{files:?} over {ranks}");
                if files.len() != ranks as usize {
                    let total: u64 = seen.iter().map(|one| one.3).sum();
                    let largest = seen.iter().map(|one| one.3).max().unwrap_or(0);
                    let most = shares.iter().map(|share| share.iter().map(|one| one.records).sum::<u64>()).max();
                    assert!(most.unwrap() <= total / u64::from(ranks) + largest + 1, "{files:?} over {ranks}");
                }
            }
        }
        let own = row_groups(&[&[5, 6], &[], &[9]], 3);
        assert_eq!(
            own.iter().map(|share| share.iter().map(|one| one.file).collect()).collect::<Vec<Vec<_>>>(),
            [vec![0, 0], vec![], vec![2]]
        );
    }

    #[test]
    fn any_beginning_is_a_sample() {
        let order = blocks(&[Slice { file: 0, first: 0, records: 1 << 20 }], 16384);
        // Of the first sixteen blocks, every quarter of the file has its share.
        for quarter in 0..4u64 {
            let inside = order[..16].iter().filter(|block| block.first >> 18 == quarter).count();
            assert!((3..=5).contains(&inside), "{inside} in quarter {quarter}");
        }
    }
}
