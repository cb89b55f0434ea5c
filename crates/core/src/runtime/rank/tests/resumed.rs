//! Jobs that continue a dataset.

use super::*;

const RANKS: u32 = 8;

/// Writes epochs in a job of their own, after a truncation if that is wanted. Returns the numbers of their receivers.
fn write(storage: &Arc<dyn Storage>, truncated: Option<u64>, epochs: &[u64]) -> Vec<usize> {
    // 8 ranks with 1,000 rows of 8 bytes have two parts.
    let options = WriteOptions { part_bytes: Some(40_000), ..options(RANKS) };
    let receivers = run(RANKS, |rank, transport| -> Result<Vec<usize>> {
        let mut job = open(storage, options.clone(), rank, transport)?;
        if let Some(epoch) = truncated {
            job.truncate_after(epoch)?;
        }
        let mut receivers = Vec::new();
        for &epoch in epochs {
            job.begin_epoch(epoch)?;
            append(&mut job, rank, 1000)?;
            receivers.push(job.end_epoch()?.rows_per_receiver.len());
        }
        job.close()?;
        Ok(receivers)
    });
    let receivers: Vec<Vec<usize>> = receivers.into_iter().map(Result::unwrap).collect();
    assert!(receivers.iter().all(|of_rank| *of_rank == receivers[0]), "{receivers:?}");
    for &epoch in epochs {
        assert_eq!(stored(storage, epoch, RANKS), vec![expected(1000); RANKS as usize]);
    }
    receivers.into_iter().next().unwrap()
}

#[test]
fn a_job_begins_with_the_volume_of_the_greatest_epoch() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    assert_eq!(write(&storage, None, &[1, 2]), [8, 2], "nothing is known before the first epoch");
    assert_eq!(write(&storage, None, &[3, 4]), [2, 2]);
    assert_eq!(write(&storage, Some(2), &[3]), [2]);
    assert_eq!(write(&storage, Some(0), &[1]), [8], "no epoch remains");
}
