//! Tests of panics while a rank's records are written: the epoch fails, and no rank waits for ever.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::format::{ColumnTap, PartId, TappedGroup};

/// Panics while a row group is encoded, or while a part is finished.
#[derive(Debug)]
enum Panics {
    InRowGroups,
    InFinish,
}

impl ColumnTap for Panics {
    fn columns(&self) -> &[usize] {
        &[]
    }

    fn receive(&self, group: &TappedGroup<'_>) -> Result<()> {
        assert!(!matches!(self, Self::InRowGroups), "row group from row {}", group.first_row);
        Ok(())
    }

    fn finish(&self, _: PartId, row_groups: u32) -> Result<()> {
        assert!(!matches!(self, Self::InFinish), "{row_groups} row groups");
        Ok(())
    }
}

fn write_epoch(job: &mut RankJob, rank: u32, epoch: u64) {
    job.begin_epoch(epoch).unwrap();
    append(job, rank, 5_000).unwrap();
    job.end_epoch().unwrap();
}

/// The thread ended with the task, and the end of the epoch waited for ever.
#[test]
fn a_task_that_panics_fails_the_epoch_on_all_ranks() {
    for (panics, expected) in [
        (|| Panics::InRowGroups, "the task that appends a run to parts of epoch 3 panicked: row group from row 0"),
        (|| Panics::InFinish, "the task that finishes parts of epoch 3 panicked: "),
    ] as [(fn() -> Panics, &str); 2]
    {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let errors = run(2, |rank, transport| {
            let mut job = open(&storage, options(2), rank, transport).unwrap();
            let tap = (rank == 1).then(|| Arc::new(panics()) as Arc<dyn ColumnTap>);
            job.begin(3, None, IfExists::Error, tap).unwrap();
            append(&mut job, rank, 20_000).unwrap();
            let error = job.end_epoch().unwrap_err().to_string();
            write_epoch(&mut job, rank, 4);
            job.close().unwrap();
            error
        });
        let failed = "epoch 3 failed on rank 1: internal error: ";
        assert!(errors.iter().all(|error| error.starts_with(&format!("{failed}{expected}"))), "{errors:?}");
        assert_eq!(stored(&storage, 4, 2)[1], self::expected(5_000));
    }
}

/// The endpoint may have lost records, which must not be missing from a committed epoch.
#[test]
fn a_panic_while_a_rank_is_driven_fails_the_epoch_on_all_ranks() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let errors = run(2, |rank, transport| {
        let mut job = open(&storage, options(2), rank, transport).unwrap();
        job.begin_epoch(0).unwrap();
        append(&mut job, rank, 20_000).unwrap();
        if rank == 1 {
            let driven = AssertUnwindSafe(|| {
                let _endpoint = job.driver.endpoint();
                panic!("in the middle of a message");
            });
            assert!(catch_unwind(driven).is_err());
        }
        let error = job.end_epoch().unwrap_err().to_string();
        write_epoch(&mut job, rank, 1);
        job.close().unwrap();
        error
    });
    let expected = "epoch 0 failed on rank 1: internal error: a thread panicked while it drove rank 1;";
    assert!(errors.iter().all(|error| error.starts_with(expected)), "{errors:?}");
}
