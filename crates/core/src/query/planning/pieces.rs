//! Cuts a query into pieces that other processes can execute.

use crate::error::Result;
use crate::query::catalog::Catalog;
use crate::query::piece::Piece;
use crate::query::planning::scan::choose;
use crate::query::request::ResolvedQuery;

/// Cuts a query into pieces that each read at most about `bytes` of values: as few row groups more as one. Reads only
/// manifests.
///
/// # Errors
/// A missing epoch; a corrupt manifest.
pub(in crate::query) fn cut(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epochs: &[u64],
    bytes: u64,
) -> Result<Vec<Piece>> {
    let mut pieces: Vec<Piece> = Vec::new();
    for &epoch in epochs {
        // A cached manifest may be of an epoch that has been replaced, which the piece's process would find out.
        let manifest = dataset.current_manifest(epoch)?;
        let begun = pieces.len();
        for choice in choose(dataset, resolved, &manifest) {
            let rows = manifest.row_groups[choice.entry].rows;
            let row_bytes = rows.saturating_mul(resolved.row_bytes() as u64);
            match pieces[begun..].last_mut() {
                Some(last) if last.bytes_most().saturating_add(row_bytes) <= bytes => {
                    last.extend(choice.entry, rows, row_bytes);
                }
                _ => pieces.push(Piece::new(&manifest, choice.entry, rows, row_bytes)),
            }
        }
    }
    Ok(pieces)
}
