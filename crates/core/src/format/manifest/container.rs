//! The file of a manifest: named sections, whose ranges can be read and verified apart.
//!
//! ```text
//! section … section | directory (JSON) | xxh3-64 of each block of 64 KiB before | trailer
//! ```
//!
//! A reader of a large manifest first reads the end of the file, and then the ranges it needs, rounded to blocks. No
//! byte is used before the checksum of its block has been verified.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_buffer::Buffer;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, IoContext, Result};
use crate::format::manifest::attributes::EpochAttributes;
use crate::format::version::{FORMAT_VERSION, check_version};
use crate::storage::ReadableFile;

/// Magic number at the end of the file.
pub(in crate::format) const CONTAINER_MAGIC: &[u8; 8] = b"TBDTMAN2";
/// Magic number at the end of manifests of format version 1, which are refused by name.
const MAGIC_OF_VERSION_1: &[u8; 8] = b"TBDTMANI";
/// Number of bytes that share a checksum.
const BLOCK_BYTES: u64 = 64 << 10;
/// Length of the trailer: the offset of the directory, the end of the directory, a checksum, and the magic number. The
/// checksum covers the checksums of the blocks, and the two numbers.
const TRAILER_BYTES: u64 = 32;
/// Number of bytes at the end of a file that are read at first. They contain the directory, and the whole blocks in
/// which it lies, if the file is smaller than 512 MiB.
const END_BYTES: u64 = 128 << 10;
/// Number of bytes at the beginning of a file that a reader needs to find the columns of the first section.
pub(in crate::format) const BEGINNING_BYTES: u64 = 64 << 10;
/// Alignment of sections, as Arrow recommends for its buffers.
const SECTION_ALIGNMENT: usize = 64;

/// The directory: which manifest this is, and where its sections are. Readers ignore unknown fields and sections.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::format) struct Directory {
    format_version: u32,
    pub(in crate::format) epoch: u64,
    commit: String,
    /// Names of features that a reader must know.
    #[serde(default)]
    requires: Vec<String>,
    /// Number of partitions of an epoch that is clustered by hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partitions: Option<u32>,
    /// Commit of the records from which the entries of an index were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    indexed_commit: Option<String>,
    /// Numbers that describe the epoch.
    #[serde(default, skip_serializing_if = "EpochAttributes::is_empty")]
    attributes: EpochAttributes,
    /// Offset and length of each section.
    sections: BTreeMap<String, (u64, u64)>,
}

/// The epoch's fields of the directory.
#[derive(Debug, Clone)]
pub(in crate::format) struct StatedEpoch {
    pub(in crate::format) epoch: u64,
    pub(in crate::format) commit: Uuid,
    pub(in crate::format) partitions: Option<u32>,
    pub(in crate::format) indexed_commit: Option<Uuid>,
    pub(in crate::format) attributes: EpochAttributes,
}

/// Builds the file.
#[derive(Debug, Default)]
pub(in crate::format) struct ContainerBuilder {
    bytes: Vec<u8>,
    sections: BTreeMap<String, (u64, u64)>,
}

impl ContainerBuilder {
    /// Appends a section.
    pub(in crate::format) fn append(&mut self, name: &str, content: &[u8]) {
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTION_ALIGNMENT), 0);
        self.sections.insert(name.to_owned(), (self.bytes.len() as u64, content.len() as u64));
        self.bytes.extend_from_slice(content);
    }

    /// Appends directory, checksums and trailer. Returns the content of the file.
    pub(in crate::format) fn finish(self, stated: &StatedEpoch) -> Vec<u8> {
        let Self { mut bytes, sections } = self;
        let StatedEpoch { epoch, commit, partitions, indexed_commit, attributes } = stated;
        let directory_offset = bytes.len() as u64;
        let mut directory = serde_json::json!({
            "format_version": FORMAT_VERSION, "epoch": epoch, "commit": commit.to_string(), "requires": [],
            "sections": sections,
        });
        if let Some(partitions) = partitions {
            directory["partitions"] = (*partitions).into();
        }
        if let Some(indexed) = indexed_commit {
            directory["indexed_commit"] = indexed.to_string().into();
        }
        if !attributes.is_empty() {
            directory["attributes"] = serde_json::json!(attributes);
        }
        bytes.extend_from_slice(directory.to_string().as_bytes());
        sealed(bytes, directory_offset)
    }
}

/// Appends checksums and trailer to sections and directory.
pub(in crate::format) fn sealed(mut covered: Vec<u8>, directory_offset: u64) -> Vec<u8> {
    let covered_bytes = covered.len() as u64;
    let mut closing: Vec<u8> =
        covered.chunks(BLOCK_BYTES as usize).flat_map(|block| xxh3_64(block).to_le_bytes()).collect();
    closing.extend_from_slice(&directory_offset.to_le_bytes());
    closing.extend_from_slice(&covered_bytes.to_le_bytes());
    closing.extend_from_slice(&xxh3_64(&closing).to_le_bytes());
    closing.extend_from_slice(CONTAINER_MAGIC);
    covered.extend_from_slice(&closing);
    covered
}

/// A contiguous range of the file that has been verified.
#[derive(Debug)]
struct Span {
    start: u64,
    content: Buffer,
}

/// An open manifest. Keeps the ranges that were loaded.
#[derive(Debug)]
pub(in crate::format) struct Container {
    /// The file, unless the whole content is in memory.
    file: Option<Arc<dyn ReadableFile>>,
    path: PathBuf,
    checksums: Vec<u64>,
    covered: u64,
    directory: Directory,
    spans: Vec<Span>,
}

impl Container {
    /// Takes over the whole content of a file.
    ///
    /// # Errors
    /// [`Error::Corruption`] on any checksum mismatch; [`Error::Version`] if another release wrote the manifest.
    pub(in crate::format) fn of_bytes(bytes: Vec<u8>, path: &Path) -> Result<Self> {
        let length = bytes.len() as u64;
        let (closing, covered, directory_offset) = take_trailer(&bytes, length, path)?;
        let checksums = checksums_of(&closing);
        let covered_bytes = &bytes[..covered as usize];
        verify(covered_bytes, &checksums, path)?;
        let directory = take_directory(&covered_bytes[directory_offset as usize..], path)?;
        let content = Buffer::from_vec(bytes);
        let spans = vec![Span { start: 0, content: content.slice_with_length(0, covered as usize) }];
        Ok(Self { file: None, path: path.to_owned(), checksums, covered, directory, spans })
    }

    /// Opens a file. Reads its end.
    ///
    /// # Errors
    /// As for [`Container::of_bytes`], and I/O errors.
    pub(in crate::format) fn open(file: Arc<dyn ReadableFile>, path: &Path) -> Result<Self> {
        let length = file.bytes();
        let begin = length.saturating_sub(END_BYTES);
        // The beginning is read next. Its place does not depend on the end.
        file.announce(&[(begin, length - begin), (0, BEGINNING_BYTES.min(length))]);
        let mut end = read(&*file, path, begin..length)?;
        let trailer = end.last_chunk::<{ TRAILER_BYTES as usize }>().ok_or_else(|| no_trailer(path))?;
        let directory_offset = u64::from_le_bytes(*trailer.first_chunk().unwrap_or(&[0; 8]));
        // The blocks of the directory are verified as a whole.
        let wanted = directory_offset / BLOCK_BYTES * BLOCK_BYTES;
        if wanted < length.saturating_sub(end.len() as u64) {
            end = read(&*file, path, wanted..length)?;
        }
        let (closing, covered, directory_offset) = take_trailer(&end, length, path)?;
        let checksums = checksums_of(&closing);
        let begin = length - end.len() as u64;
        let start = begin.next_multiple_of(BLOCK_BYTES);
        let blocks = &end[(start - begin) as usize..(covered - begin) as usize];
        verify(blocks, &checksums[(start / BLOCK_BYTES) as usize..], path)?;
        let directory = take_directory(&blocks[(directory_offset - start) as usize..], path)?;
        let spans = vec![Span { start, content: Buffer::from_vec(blocks.to_vec()) }];
        Ok(Self { file: Some(file), path: path.to_owned(), checksums, covered, directory, spans })
    }

    /// Returns what the directory states of the epoch. Returns `None` if a commit cannot be decoded.
    pub(in crate::format) fn stated(&self) -> Option<StatedEpoch> {
        let Directory { epoch, commit, partitions, indexed_commit, attributes, .. } = &self.directory;
        let indexed_commit = match indexed_commit {
            Some(indexed) => Some(indexed.parse().ok()?),
            None => None,
        };
        let (epoch, commit, attributes) = (*epoch, commit.parse().ok()?, attributes.clone());
        Some(StatedEpoch { epoch, commit, partitions: *partitions, indexed_commit, attributes })
    }

    /// Returns the range of a section.
    pub(in crate::format) fn section(&self, name: &str) -> Option<Range<u64>> {
        let &(offset, bytes) = self.directory.sections.get(name)?;
        let end = offset.checked_add(bytes).filter(|end| *end <= self.covered)?;
        Some(offset..end)
    }

    /// Loads ranges of the file that are not loaded yet, in few reads.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a range lies outside the file, or on a checksum mismatch; I/O errors.
    pub(in crate::format) fn load(&mut self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        let mut wanted: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            if range.start > range.end || range.end > self.covered {
                return Err(Error::corruption(&self.path, "a section lies outside the file"));
            }
            if !range.is_empty() && self.get(&range).is_none() {
                wanted.push(range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES));
            }
        }
        wanted.sort_unstable_by_key(|blocks| blocks.start);
        let Some(file) = self.file.clone() else { return Ok(()) };
        let mut reads: Vec<Range<u64>> = Vec::new();
        for blocks in wanted {
            match reads.last_mut() {
                // A block between two ranges costs less than another read.
                Some(last) if blocks.start <= last.end + 1 => last.end = last.end.max(blocks.end),
                _ => reads.push(blocks),
            }
        }
        let bytes_of = |blocks: &Range<u64>| blocks.start * BLOCK_BYTES..(blocks.end * BLOCK_BYTES).min(self.covered);
        let announced: Vec<(u64, u64)> =
            reads.iter().map(bytes_of).map(|bytes| (bytes.start, bytes.end - bytes.start)).collect();
        if reads.len() > 1 {
            file.announce(&announced);
        }
        for blocks in reads {
            let bytes = bytes_of(&blocks);
            let start = bytes.start;
            let content = read(&*file, &self.path, bytes)?;
            verify(&content, &self.checksums[blocks.start as usize..], &self.path)?;
            self.spans.push(Span { start, content: Buffer::from_vec(content) });
        }
        Ok(())
    }

    /// Returns a range that has been loaded. Returns `None` for others.
    pub(in crate::format) fn get(&self, range: &Range<u64>) -> Option<Buffer> {
        if range.is_empty() {
            return Some(Buffer::from_vec(Vec::<u8>::new()));
        }
        let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
        self.spans.iter().find_map(|span| {
            let start = usize::try_from(range.start.checked_sub(span.start)?).ok()?;
            let end = start.checked_add(length)?;
            (end <= span.content.len()).then(|| span.content.slice_with_length(start, length))
        })
    }
}

fn read(file: &dyn ReadableFile, path: &Path, range: Range<u64>) -> Result<Vec<u8>> {
    let bytes = usize::try_from(range.end - range.start).map_err(|_| no_trailer(path))?;
    let mut content = vec![0; bytes];
    match file.read_at(range.start, &mut content) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(Error::corruption(path, error.to_string())),
        other => other.at("read", path).map(|()| content),
    }
}

fn no_trailer(path: &Path) -> Error {
    Error::corruption(path, "it has no manifest trailer")
}

/// Verifies the trailer of a file of `length` bytes, of which `end` are the last ones. Returns the checksums of the
/// blocks in their encoding, the number of bytes they cover, and the offset of the directory.
fn take_trailer(end: &[u8], length: u64, path: &Path) -> Result<(Vec<u8>, u64, u64)> {
    let corruption = |what: &str| Error::corruption(path, what);
    if end.ends_with(MAGIC_OF_VERSION_1) {
        return Err(Error::Version { path: path.to_owned(), found: 1, supported: FORMAT_VERSION });
    }
    if !end.ends_with(CONTAINER_MAGIC) {
        return Err(no_trailer(path));
    }
    let (rest, trailer) = end.split_last_chunk::<{ TRAILER_BYTES as usize }>().ok_or_else(|| no_trailer(path))?;
    let number = |at: usize| {
        let mut raw = [0; 8];
        raw.copy_from_slice(&trailer[at..at + 8]);
        u64::from_le_bytes(raw)
    };
    let (directory_offset, covered, checksum) = (number(0), number(8), number(16));
    let begin = length - end.len() as u64;
    let checksums = covered
        .checked_sub(begin)
        .filter(|start| *start <= rest.len() as u64)
        .map(|start| &rest[start as usize..])
        .filter(|checksums| checksums.len() as u64 == 8 * covered.div_ceil(BLOCK_BYTES));
    let Some(checksums) = checksums.filter(|_| directory_offset >= begin && directory_offset <= covered) else {
        return Err(corruption("its trailer does not fit its length"));
    };
    if xxh3_64(&[checksums, &trailer[..16]].concat()) != checksum {
        return Err(corruption("checksum mismatch"));
    }
    Ok((checksums.to_vec(), covered, directory_offset))
}

fn checksums_of(encoded: &[u8]) -> Vec<u64> {
    encoded.as_chunks::<8>().0.iter().map(|raw| u64::from_le_bytes(*raw)).collect()
}

/// Compares whole blocks with their checksums. The last block may be shorter.
fn verify(blocks: &[u8], checksums: &[u64], path: &Path) -> Result<()> {
    let matches = |(block, checksum): (&[u8], &u64)| xxh3_64(block) == *checksum;
    let mut blocks = blocks.chunks(BLOCK_BYTES as usize);
    if blocks.len() <= checksums.len() && blocks.by_ref().zip(checksums).all(matches) {
        return Ok(());
    }
    Err(Error::corruption(path, "checksum mismatch"))
}

/// Decodes the directory.
fn take_directory(text: &[u8], path: &Path) -> Result<Directory> {
    #[derive(Deserialize)]
    struct Version {
        format_version: u32,
    }
    let undecodable = |error: serde_json::Error| Error::corruption(path, format!("its directory: {error}"));
    let version: Version = serde_json::from_slice(text).map_err(undecodable)?;
    check_version(version.format_version, path)?;
    let directory: Directory = serde_json::from_slice(text).map_err(undecodable)?;
    match directory.requires.first() {
        Some(feature) => Err(Error::Feature { path: path.to_owned(), feature: feature.clone() }),
        None => Ok(directory),
    }
}
