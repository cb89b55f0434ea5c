//! The sidecar of one part: sections of bins and of bin numbers, and a directory of them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::bin_numbers::{BinNumbers, Encoding};
use super::bins::{Bins, MAX_BINS};
use crate::error::{Error, IoContext, Result};
use crate::format::manifest::entries::PartId;
use crate::schema::{KeyOrder, MAX_COLUMNS};
use crate::storage::{ReadableFile, Storage, WritableFile};

/// The first and last bytes of a sidecar.
const MAGIC: [u8; 8] = *b"TBITMAP1";

/// Size of the directory's fields before the row groups, in bytes.
const IDENTITY_BYTES: usize = 56;

/// Size of a row group's fields before its columns, in bytes.
const GROUP_BYTES: usize = 8;

/// Size of the fields of a column of a row group, in bytes.
const SECTION_BYTES: usize = 48;

/// Size of the trailer in bytes: offset, length and checksum of the directory, and the magic.
const TRAILER_BYTES: usize = 32;

/// Maximum memory for the decoded bins that an open sidecar keeps, in bytes. Those of three columns in a part of 28 MiB
/// take half of it.
const KEPT_BYTES: u64 = 512 << 10;

/// The identity of a sidecar: the part that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SidecarIdentity {
    /// The dataset of the records.
    pub(crate) dataset: Uuid,
    /// The commit of the records.
    pub(crate) commit: Uuid,
    pub(crate) epoch: u64,
    pub(crate) part: PartId,
}

/// The encoded bins and bin numbers of one column of a row group.
#[derive(Debug, Clone)]
pub(crate) struct EncodedSection {
    pub(crate) bins: Vec<u8>,
    pub(crate) encoding: Encoding,
    pub(crate) numbers: Vec<u8>,
}

/// Place and checksum of some bytes of a sidecar.
#[derive(Debug, Clone, Copy)]
struct Extent {
    offset: u64,
    bytes: u32,
    checksum: u64,
}

#[derive(Debug, Clone, Copy)]
struct Section {
    bins: Extent,
    numbers: Extent,
    encoding: Encoding,
}

/// A sidecar that is being written. Row groups are appended in the order of the part.
#[derive(Debug)]
pub(crate) struct SidecarWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    offset: u64,
    directory: Vec<u8>,
    row_groups: u32,
}

impl SidecarWriter {
    /// Creates the sidecar of a part, with this number of columns.
    pub(crate) fn create(storage: &dyn Storage, path: &Path, identity: &SidecarIdentity, columns: u32) -> Result<Self> {
        let mut directory = Vec::new();
        directory.extend_from_slice(identity.dataset.as_bytes());
        directory.extend_from_slice(identity.commit.as_bytes());
        directory.extend_from_slice(&identity.epoch.to_le_bytes());
        for number in [identity.part.rank, identity.part.roll, columns, 0] {
            directory.extend_from_slice(&number.to_le_bytes());
        }
        let mut file = storage.create(path).at("create", path)?;
        file.write_at(0, &MAGIC).at("write", path)?;
        Ok(Self { file, path: path.to_owned(), offset: MAGIC.len() as u64, directory, row_groups: 0 })
    }

    /// Appends a row group, with the sections of all columns. Each is written before the next is made. After an error,
    /// the sidecar cannot be finished.
    pub(crate) fn append(
        &mut self,
        rows: u32,
        sections: impl IntoIterator<Item = Result<EncodedSection>>,
    ) -> Result<()> {
        self.directory.extend_from_slice(&rows.to_le_bytes());
        self.directory.extend_from_slice(&0u32.to_le_bytes());
        for section in sections {
            let EncodedSection { bins: mut content, encoding, numbers } = section?;
            let bins_bytes = content.len();
            content.extend_from_slice(&numbers);
            for place in [0..bins_bytes, bins_bytes..content.len()] {
                let length = u32::try_from(place.len()).map_err(|_| Error::internal("a section of 4 GiB"))?;
                self.directory.extend_from_slice(&(self.offset + place.start as u64).to_le_bytes());
                self.directory.extend_from_slice(&xxh3_64(&content[place]).to_le_bytes());
                self.directory.extend_from_slice(&length.to_le_bytes());
            }
            self.directory.extend_from_slice(&encoding.code().to_le_bytes());
            self.directory.extend_from_slice(&0u32.to_le_bytes());
            self.file.write_at(self.offset, &content).at("write", &self.path)?;
            self.offset += content.len() as u64;
        }
        self.row_groups += 1;
        Ok(())
    }

    /// Returns the number of row groups so far.
    pub(crate) fn row_groups(&self) -> u32 {
        self.row_groups
    }

    /// Writes the directory, and makes the file durable. Returns its size in bytes.
    pub(crate) fn finish(mut self) -> Result<u64> {
        self.directory[IDENTITY_BYTES - 4..IDENTITY_BYTES].copy_from_slice(&self.row_groups.to_le_bytes());
        let checksum = xxh3_64(&self.directory);
        let length = self.directory.len() as u64;
        for number in [self.offset, length, checksum] {
            self.directory.extend_from_slice(&number.to_le_bytes());
        }
        self.directory.extend_from_slice(&MAGIC);
        self.file.write_at(self.offset, &self.directory).at("write", &self.path)?;
        self.file.sync().at("sync", &self.path)?;
        Ok(self.offset + self.directory.len() as u64)
    }
}

/// An open sidecar, whose directory has been checked.
#[derive(Debug)]
pub(crate) struct SidecarReader {
    file: Arc<dyn ReadableFile>,
    path: PathBuf,
    /// Number of rows of each row group.
    rows: Vec<u32>,
    /// The sections of all columns of the first row group, then those of the next.
    sections: Vec<Section>,
    columns: usize,
    /// Bins that have been read, for each section. They are read by each query that asks for their column.
    kept: Vec<OnceLock<Arc<Bins>>>,
    kept_bytes: AtomicU64,
}

/// Reads little-endian numbers from bytes whose length has been checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk::<N>().map_or(([0; N], &[][..]), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn extent(&mut self) -> Extent {
        let (offset, checksum) = (self.u64(), self.u64());
        Extent { offset, bytes: self.u32(), checksum }
    }
}

impl SidecarReader {
    /// Opens the sidecar of a part, and checks its directory.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the directory is corrupt, or that of another part; I/O errors.
    pub(crate) fn open(storage: &dyn Storage, path: &Path, identity: &SidecarIdentity, columns: usize) -> Result<Self> {
        let file = storage.open(path).at("open", path)?;
        let corrupt = |what: &str| Error::corruption_at(path, "directory", what);
        let trailer_at = file.bytes().checked_sub(TRAILER_BYTES as u64).ok_or_else(|| corrupt("it is too short"))?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_at(trailer_at, &mut trailer).at("read", path)?;
        let mut fields = Fields(&trailer);
        let (offset, length, checksum) = (fields.u64(), fields.u64(), fields.u64());
        if fields.take() != MAGIC {
            return Err(corrupt("it does not end like a sidecar"));
        }
        if offset < MAGIC.len() as u64 || offset.checked_add(length) != Some(trailer_at) {
            return Err(corrupt("it does not end where the file does"));
        }
        // Not longer than the file.
        let mut directory = vec![0; length as usize];
        file.read_at(offset, &mut directory).at("read", path)?;
        if xxh3_64(&directory) != checksum {
            return Err(corrupt("checksum mismatch"));
        }
        let (rows, sections) = Self::decode(&directory, identity, columns, offset).map_err(|what| corrupt(&what))?;
        let kept = sections.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { file, path: path.to_owned(), rows, sections, columns, kept, kept_bytes: AtomicU64::new(0) })
    }

    /// Decodes a directory at an offset of the file.
    fn decode(
        directory: &[u8],
        identity: &SidecarIdentity,
        columns: usize,
        offset: u64,
    ) -> Result<(Vec<u32>, Vec<Section>), String> {
        if directory.len() < IDENTITY_BYTES || columns > MAX_COLUMNS {
            return Err("it is too short".to_owned());
        }
        let mut fields = Fields(directory);
        let dataset = Uuid::from_bytes(fields.take());
        let commit = Uuid::from_bytes(fields.take());
        let epoch = fields.u64();
        let part = PartId { rank: fields.u32(), roll: fields.u32() };
        let found = SidecarIdentity { dataset, commit, epoch, part };
        if found != *identity {
            return Err(format!("it is that of {} of epoch {epoch}, commit {commit}", part.file_name()));
        }
        let (stated, groups) = (fields.u32() as usize, fields.u32() as usize);
        if stated != columns {
            return Err(format!("it has {stated} columns, the index has {columns}"));
        }
        let expected = (columns * SECTION_BYTES + GROUP_BYTES).checked_mul(groups);
        if expected.and_then(|bytes| bytes.checked_add(IDENTITY_BYTES)) != Some(directory.len()) {
            return Err(format!("{} bytes are no directory of {groups} row groups", directory.len()));
        }
        let mut rows = Vec::with_capacity(groups);
        let mut sections = Vec::with_capacity(groups * columns);
        let is_inside = |extent: &Extent| {
            let end = extent.offset.checked_add(extent.bytes.into());
            extent.offset >= MAGIC.len() as u64 && end.is_some_and(|end| end <= offset)
        };
        for group in 0..groups {
            rows.push(fields.u32());
            fields.u32();
            for column in 0..columns {
                let (bins, numbers, code) = (fields.extent(), fields.extent(), fields.u32());
                fields.u32();
                if !is_inside(&bins) || !is_inside(&numbers) {
                    return Err(format!("row group {group}, column {column} lies outside the file"));
                }
                let encoding = Encoding::from_code(code);
                let encoding =
                    encoding.ok_or_else(|| format!("row group {group}, column {column} has encoding {code}"))?;
                sections.push(Section { bins, numbers, encoding });
            }
        }
        Ok((rows, sections))
    }

    /// Returns the number of rows of each row group.
    pub(crate) fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns the number of bytes that the bin numbers of a column of a row group take.
    pub(crate) fn number_bytes(&self, row_group: usize, column: usize) -> u64 {
        self.section(row_group, column).map_or(0, |section| section.numbers.bytes.into())
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the memory that the directory and the bins that may be kept take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let section_bytes = size_of::<Section>() + size_of::<OnceLock<Arc<Bins>>>();
        (self.sections.len() * section_bytes + self.rows.len() * size_of::<u32>()) as u64 + KEPT_BYTES
    }

    /// Returns the position of a column's section in a row group.
    fn position(&self, row_group: usize, column: usize) -> Option<usize> {
        (row_group < self.rows.len() && column < self.columns).then(|| row_group * self.columns + column)
    }

    fn section(&self, row_group: usize, column: usize) -> Option<&Section> {
        self.sections.get(self.position(row_group, column)?)
    }

    /// Returns the bins of a column in a row group, and the number of bytes that were read: 0 if they were kept.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the bins are corrupt, or there is no such row group; I/O errors.
    pub(crate) fn bins(&self, row_group: usize, column: usize, order: KeyOrder) -> Result<(Arc<Bins>, u64)> {
        let position = self.position(row_group, column).ok_or_else(|| self.missing(row_group))?;
        if let Some(kept) = self.kept[position].get() {
            return Ok((kept.clone(), 0));
        }
        let (bins, bytes) = self.read_bins(row_group, column, order)?;
        let bins = Arc::new(bins);
        let memory_bytes = bins.memory_bytes();
        if self.kept_bytes.fetch_add(memory_bytes, Ordering::Relaxed).saturating_add(memory_bytes) <= KEPT_BYTES {
            // If another thread was faster, this has been counted twice, and a little less is kept.
            let _ = self.kept[position].set(bins.clone());
        } else {
            self.kept_bytes.fetch_sub(memory_bytes, Ordering::Relaxed);
        }
        Ok((bins, bytes))
    }

    fn read_bins(&self, row_group: usize, column: usize, order: KeyOrder) -> Result<(Bins, u64)> {
        let section = self.section(row_group, column).ok_or_else(|| self.missing(row_group))?;
        let bytes = self.read(&section.bins, row_group, column, "bins")?;
        let bins = Bins::decode(&bytes, order, self.rows[row_group]);
        let bins = bins.map_err(|what| self.corrupt(row_group, column, "bins", what))?;
        Ok((bins, bytes.len() as u64))
    }

    /// Reads the bin of each row of a row group, for a column with these bins.
    ///
    /// # Errors
    /// As for [`SidecarReader::bins`].
    pub(crate) fn numbers(&self, row_group: usize, column: usize, bins: &Bins) -> Result<BinNumbers> {
        let section = self.section(row_group, column).ok_or_else(|| self.missing(row_group))?;
        let bytes = self.read(&section.numbers, row_group, column, "bin numbers")?;
        let rows = self.rows[row_group];
        BinNumbers::decode(section.encoding, bytes, rows, bins.get().len())
            .map_err(|what| self.corrupt(row_group, column, "bin numbers", what))
    }

    /// Checks the first bytes, which queries do not read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if they are not those of a sidecar; I/O errors.
    pub(crate) fn verify_head(&self) -> Result<()> {
        let mut head = [0; MAGIC.len()];
        self.file.read_at(0, &mut head).at("read", &self.path)?;
        if head == MAGIC { Ok(()) } else { Err(Error::corruption(&self.path, "it does not begin like a sidecar")) }
    }

    /// Reads bins and bin numbers, and checks that as many rows are in each bin as the bins state.
    ///
    /// # Errors
    /// As for [`SidecarReader::bins`].
    pub(crate) fn verify(&self, row_group: usize, column: usize, order: KeyOrder) -> Result<u64> {
        let (bins, bytes) = self.read_bins(row_group, column, order)?;
        let numbers = self.numbers(row_group, column, &bins)?;
        let mut rows = [0u32; MAX_BINS];
        numbers.bytes().iter().for_each(|bin| rows[usize::from(*bin)] += 1);
        let stated = bins.get().iter().map(|bin| bin.rows).chain(std::iter::repeat(0));
        match rows.iter().zip(stated).position(|(found, stated)| *found != stated) {
            None => Ok(bytes + self.number_bytes(row_group, column)),
            Some(bin) => {
                let what = format!("{} rows are in bin {bin}, which states another number", rows[bin]);
                Err(self.corrupt(row_group, column, "bin numbers", what))
            }
        }
    }

    fn read(&self, extent: &Extent, row_group: usize, column: usize, what: &str) -> Result<Vec<u8>> {
        // Not longer than the file.
        let mut bytes = vec![0; extent.bytes as usize];
        self.file.read_at(extent.offset, &mut bytes).at("read", &self.path)?;
        if xxh3_64(&bytes) != extent.checksum {
            return Err(self.corrupt(row_group, column, what, "checksum mismatch"));
        }
        Ok(bytes)
    }

    fn missing(&self, row_group: usize) -> Error {
        let what = format!("it has {} row groups, and lacks number {row_group}", self.rows.len());
        Error::corruption_at(&self.path, "directory", what)
    }

    fn corrupt(&self, row_group: usize, column: usize, place: &str, what: impl Into<String>) -> Error {
        Error::corruption_at(&self.path, format!("row group {row_group}, column {column} of the index, {place}"), what)
    }
}

#[cfg(test)]
mod tests {
    use super::super::bin_numbers::encode;
    use super::super::bins::Bin;
    use super::*;
    use crate::random::Random;
    use crate::schema::DataType;
    use crate::storage::MemoryStorage;

    const IDENTITY: SidecarIdentity = SidecarIdentity {
        dataset: Uuid::from_u128(1),
        commit: Uuid::from_u128(2),
        epoch: 200,
        part: PartId { rank: 3, roll: 1 },
    };

    fn order() -> KeyOrder {
        KeyOrder::new(DataType::U8).unwrap()
    }

    fn section(numbers: &[u8]) -> EncodedSection {
        let count = |bin: u8| numbers.iter().filter(|number| **number == bin).count() as u32;
        let bins = (0..3u8).map(|bin| Bin { least: bin.into(), greatest: bin.into(), rows: count(bin) }).collect();
        let (encoding, encoded) = encode(numbers, 3, None);
        EncodedSection { bins: Bins::new(order(), bins).encode(), encoding, numbers: encoded }
    }

    fn written() -> Vec<u8> {
        let (storage, path) = (MemoryStorage::new(), Path::new("/part"));
        storage.create_dir_all(Path::new("/")).unwrap();
        let mut writer = SidecarWriter::create(&storage, path, &IDENTITY, 2).unwrap();
        let sections = [section(&[0, 1, 2, 2, 1, 0]), section(&[0, 0, 0, 1, 1, 2])];
        writer.append(6, sections.map(Ok)).unwrap();
        writer.append(3, [section(&[0, 1, 2]), section(&[2, 1, 0])].map(Ok)).unwrap();
        let bytes = writer.finish().unwrap();
        let content = crate::storage::read_all(&storage, path, 1 << 20).unwrap();
        assert_eq!(content.len() as u64, bytes);
        content
    }

    /// Reads everything of a sidecar with this content.
    fn read(content: &[u8], identity: &SidecarIdentity, columns: usize) -> Result<Vec<Vec<u8>>> {
        let (storage, path) = (MemoryStorage::new(), Path::new("/part"));
        storage.create_dir_all(Path::new("/")).unwrap();
        storage.create(path).unwrap().write_at(0, content).unwrap();
        let reader = SidecarReader::open(&storage, path, identity, columns)?;
        let mut found = Vec::new();
        for group in 0..reader.rows().len() {
            for column in 0..columns {
                let (bins, _) = reader.bins(group, column, order())?;
                found.push(reader.numbers(group, column, &bins)?.bytes().into_owned());
            }
        }
        assert!(reader.bins(reader.rows().len(), 0, order()).is_err());
        Ok(found)
    }

    #[test]
    fn sidecars_round_trip() {
        let found = read(&written(), &IDENTITY, 2).unwrap();
        let expected: [&[u8]; 4] = [&[0, 1, 2, 2, 1, 0], &[0, 0, 0, 1, 1, 2], &[0, 1, 2], &[2, 1, 0]];
        assert_eq!(found, expected);
    }

    #[test]
    fn every_flipped_bit_and_cut_is_an_error_that_names_the_file() {
        let content = written();
        for place in MAGIC.len()..content.len() {
            for bit in 0..8 {
                let mut flipped = content.clone();
                flipped[place] ^= 1 << bit;
                let error = read(&flipped, &IDENTITY, 2).unwrap_err();
                assert!(matches!(&error, Error::Corruption { path, .. } if path == Path::new("/part")), "{error}");
            }
            assert!(read(&content[..place], &IDENTITY, 2).is_err());
        }
        let other = SidecarIdentity { commit: Uuid::from_u128(9), ..IDENTITY };
        assert!(read(&content, &other, 2).unwrap_err().to_string().contains("commit"));
        assert!(read(&content, &IDENTITY, 3).unwrap_err().to_string().contains("columns"));
    }

    /// Wild values in directories with a valid checksum, and sections with valid checksums, lead to errors or to
    /// numbers, but never to a panic.
    #[test]
    fn wild_directories_and_sections_are_refused_or_decoded() {
        let content = written();
        let directory_at = {
            let mut fields = Fields(&content[content.len() - TRAILER_BYTES..]);
            fields.u64() as usize
        };
        let (mut random, mut refused) = (Random::new(4), 0);
        for _ in 0..20_000 {
            let mut wild = content.clone();
            let end = content.len() - TRAILER_BYTES;
            for _ in 0..1 + random.below(3) {
                let at = MAGIC.len() + random.below((end - MAGIC.len()) as u64) as usize;
                wild[at] = [0, 1, 0x7F, 0x80, 0xFF][random.below(5) as usize];
            }
            // Checksums are valid again, wherever the directory states a place in the file.
            for at in (0..4).flat_map(|section| {
                let group = section / 2;
                let base = directory_at + IDENTITY_BYTES + GROUP_BYTES * (group + 1) + SECTION_BYTES * section;
                [base, base + 20]
            }) {
                let mut fields = Fields(&wild[at..]);
                let extent = fields.extent();
                let range = usize::try_from(extent.offset)
                    .ok()
                    .and_then(|from| Some(from..from.checked_add(extent.bytes as usize)?));
                if let Some(bytes) = range.and_then(|range| wild.get(range)) {
                    let checksum = xxh3_64(bytes);
                    wild[at + 8..at + 16].copy_from_slice(&checksum.to_le_bytes());
                }
            }
            let checksum = xxh3_64(&wild[directory_at..end]);
            wild[end + 16..end + 24].copy_from_slice(&checksum.to_le_bytes());
            match read(&wild, &IDENTITY, 2) {
                Ok(found) => assert_eq!(found.len(), 4),
                Err(Error::Corruption { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 10_000, "{refused}");
    }
}
