//! Distributes an epoch's row groups over a job of any size.

use crate::slices::scattered;

/// A row group, which can only be read from its beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowGroup {
    /// Index of the file within the epoch.
    pub(crate) file: usize,
    /// Index of the row group within the file.
    pub(crate) index: usize,
    /// Index of the first record within the file.
    pub(crate) first: u64,
    /// Number of records.
    pub(crate) records: u64,
}

/// Returns the row groups of each of `ranks` ranks. `files` holds the number of records of each file's row groups. The
/// order is scattered, so that every prefix is a sample of the share, as far as whole row groups allow.
///
/// With as many ranks as files, each rank reads one file. Otherwise the row groups of all files form one sequence of
/// records, which is divided evenly between the ranks. A row group is assigned to the rank whose part contains its
/// middle record. Since one rank decodes the whole row group, large row groups make shares uneven.
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
}
