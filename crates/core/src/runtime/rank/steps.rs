//! Steps that ranks take together, without records.

use super::announcement::Announcement;
use super::driver::RankDriver;
use crate::error::{Error, Result};
use crate::runtime::WriteOptions;
use crate::shuffle::{MessageError, Payloads, Topology, Transport};

/// One of several processes that take the same steps.
#[derive(Debug)]
pub(crate) struct RankSteps(RankDriver);

impl RankSteps {
    /// Creates one of `ranks` processes. They wait for each other without a limit, since shares may take long.
    pub(crate) fn new(
        (rank, ranks): (u32, u32),
        topology: Topology,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let options = WriteOptions { topology, stall_limit: None, ..WriteOptions::new(ranks) };
        options.check()?;
        let driver = RankDriver::without_records(&options, rank, transport)?;
        let joined = |reports: Payloads| Ok(reports.into_iter().flat_map(|(_, items)| items).collect());
        driver.endpoint().engine.merge_payloads(joined);
        Ok(Self(driver))
    }

    /// Takes a step: rank 0 calls `lead`, then all ranks call `share` with its result, which is returned. All ranks
    /// make the same calls.
    ///
    /// # Errors
    /// If `lead` or the `share` of any rank fails, on every rank; when the connection has failed.
    pub(crate) fn take(
        &mut self,
        call: &'static str,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<()>,
    ) -> Result<String> {
        self.step(call, lead, |text| share(text).map(|()| Vec::new()))
    }

    /// Takes a step like [`RankSteps::take`]. Returns the items that the shares of all ranks have returned, in any
    /// order, on rank 0.
    ///
    /// # Errors
    /// As for [`RankSteps::take`].
    pub(crate) fn collect(
        &mut self,
        call: &'static str,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<Vec<Vec<u8>>>,
    ) -> Result<Vec<Vec<u8>>> {
        self.step(call, lead, share)?;
        let mut items = Vec::new();
        for (rank, joined) in self.0.endpoint().take_reports() {
            items.extend(separated(&joined).ok_or(Error::Message { rank, source: MessageError::Short })?);
        }
        Ok(items)
    }

    fn step(
        &mut self,
        call: &'static str,
        lead: impl FnOnce() -> Result<String>,
        share: impl FnOnce(&str) -> Result<Vec<Vec<u8>>>,
    ) -> Result<String> {
        let announcement = (self.0.rank == 0).then(|| match lead() {
            Ok(text) => Announcement::Step { text },
            Err(error) => Announcement::refused(&error),
        });
        let mut own = None;
        let agreed = self.0.agree(call, announcement, |driver, announced| {
            let Announcement::Step { text } = announced else { return Ok(()) };
            let items = share(text).map_err(|error| {
                let (rank, class, refusal, cause) = (driver.rank, error.class(), error.refusal(), error.cause());
                own = Some(error);
                Error::Refused { rank, class, refusal, cause }
            })?;
            driver.endpoint().report(joined(&items));
            Ok(())
        });
        // The rank that has failed knows its error best.
        if let Some(error) = own {
            return Err(error);
        }
        match agreed? {
            Announcement::Step { text } => Ok(text),
            _ => Err(Error::internal("an announcement of no step")),
        }
    }
}

/// Joins items to one report, each after its length. Reports that follow each other are one report of all their items.
fn joined(items: &[Vec<u8>]) -> Vec<u8> {
    items.iter().flat_map(|item| [&(item.len() as u64).to_le_bytes()[..], item].concat()).collect()
}

/// Returns the items of reports that follow each other. `None` if the last one is cut off.
fn separated(mut reports: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut items = Vec::new();
    while !reports.is_empty() {
        let (length, rest) = reports.split_first_chunk::<8>()?;
        let (item, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        items.push(item.to_vec());
        reports = rest;
    }
    Some(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joined_items_are_separated_again() {
        let items = [vec![1, 2, 3], Vec::new(), vec![4; 300]];
        let mut reports = joined(&items[..2]);
        reports.extend(joined(&[]));
        reports.extend(joined(&items[2..]));
        assert_eq!(separated(&reports).as_deref(), Some(&items[..]));
        for end in [1, 7, 10, reports.len() - 1] {
            assert_eq!(separated(&reports[..end]), None, "{end}");
        }
    }
}
