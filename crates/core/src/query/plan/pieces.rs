//! Cuts a query into pieces that other processes can execute: of about a size ([`cut`]), or of a number ([`share`]).

use crate::error::{Error, Result};
use crate::query::catalog::Catalog;
use crate::query::piece::Piece;
use crate::query::request::ResolvedQuery;
use crate::query::scan::epoch_scan::choose;

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
        let manifest = dataset.manifest_of_now(epoch)?;
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

/// Returns the pieces of share `index` of `count` shares of a query, one for each epoch. The rows of all row groups
/// that the manifests do not exclude, in the order of epochs and manifests, are divided evenly: shares differ by at
/// most one row before the predicate. Reads only manifests.
///
/// # Errors
/// A missing or replaced epoch; a corrupt manifest.
pub(in crate::query) fn share(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epochs: &[u64],
    (index, count): (u64, u64),
) -> Result<Vec<Piece>> {
    let mut sizes = Vec::with_capacity(epochs.len());
    let mut total = 0u64;
    for &epoch in epochs {
        let manifest = dataset.manifest_of_now(epoch)?;
        let chosen = choose(dataset, resolved, &manifest);
        let rows = chosen.iter().map(|choice| manifest.row_groups[choice.entry].rows).fold(0, u64::saturating_add);
        total = total.saturating_add(rows);
        sizes.push((epoch, manifest.commit, rows));
    }
    let cut = |share: u64| (u128::from(total) * u128::from(share) / u128::from(count)) as u64;
    let wanted = cut(index)..cut(index + 1);
    let row_bytes = resolved.row_bytes() as u64;
    let mut pieces = Vec::new();
    // Position of a row among those of all epochs.
    let mut position = 0u64;
    for (epoch, commit, rows) in sizes {
        let end = position.saturating_add(rows);
        if end <= wanted.start || wanted.end <= position {
            position = end;
            continue;
        }
        let manifest = dataset.manifest_of_now(epoch)?;
        if manifest.commit != commit {
            return Err(Error::EpochReplaced { epoch, path: dataset.root().to_owned() });
        }
        let mut piece: Option<Piece> = None;
        for choice in choose(dataset, resolved, &manifest) {
            let rows = manifest.row_groups[choice.entry].rows;
            let within = |place: u64| place.clamp(position, position.saturating_add(rows)) - position;
            let own = within(wanted.start)..within(wanted.end);
            position = position.saturating_add(rows);
            match &mut piece {
                _ if own.is_empty() => {}
                None => piece = Some(Piece::of_rows(&manifest, choice.entry, &own, row_bytes)),
                Some(piece) => piece.extend_by_rows(&manifest, choice.entry, &own, row_bytes),
            }
        }
        pieces.extend(piece);
    }
    Ok(pieces)
}
