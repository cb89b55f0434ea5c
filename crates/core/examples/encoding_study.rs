//! Compares encodings of the bins of rows: those of bitmap indexes, and those that the literature has. Prints their
//! sizes, and what it takes to find the rows of a range of bins.
//!
//! `encoding_study DS EPOCH COLUMN…`
//!
//! The values of each column are read in the order in which they are stored, and divided into chunks of as many rows as
//! a row group has. A chunk has at most 256 bins, which begin at decimals of two digits; the sparsest are joined. The
//! ranges have one bin, a sixteenth and half of the bins. All encodings must find the same rows.

use std::ops::Range;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int16Type, Int32Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use turbidite::query::{Dataset, Query};
use turbidite::random::Random;

const USAGE: &str = "usage: encoding_study DS EPOCH COLUMN...";

/// Rows of a chunk.
const CHUNK_ROWS: usize = 53_248;

/// Maximum number of bins of a chunk.
const MOST_BINS: usize = 256;

/// Bins of a coarse bitmap of two levels.
const COARSE: usize = 16;

/// Ranges of each width that are read of each chunk.
const RANGES: usize = 24;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A bitmap of rows.
type Bitmap = Vec<u64>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, epoch, columns @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    if columns.is_empty() {
        return Err(USAGE.into());
    }
    let (dataset, epoch) = (Dataset::open(path)?, epoch.parse::<u64>()?);
    println!("| column | encoding | bits a value | one bin: bytes read, ns a 1,000 rows | a sixteenth | half |");
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for column in columns {
        let values = read(&dataset, epoch, column)?;
        let chunks: Vec<Chunk> = values.chunks(CHUNK_ROWS).map(Chunk::new).collect();
        for encoding in ENCODINGS {
            let encoded: Vec<Box<dyn Encoded>> = chunks.iter().map(encoding.1).collect();
            let bytes: usize = encoded.iter().map(|encoded| encoded.bytes()).sum();
            print!("| {column} | {} | {:.2} |", encoding.0, bytes as f64 * 8.0 / values.len() as f64);
            for divisor in [MOST_BINS, 16, 2] {
                let (read_bytes, ns) = time(&chunks, &encoded, divisor)?;
                print!(" {read_bytes:.0}, {ns:.0} |");
            }
            println!();
        }
    }
    Ok(())
}

/// Returns the values of a column in the order in which they are stored.
fn read(dataset: &Dataset, epoch: u64, column: &str) -> Outcome<Vec<f64>> {
    let mut values = Vec::new();
    for batch in dataset.run(&Query::new().epochs(epoch).columns([column]).threads(1))? {
        let array: ArrayRef = batch?.column(0).clone();
        match array.data_type() {
            DataType::Float32 => {
                values.extend(array.as_primitive::<Float32Type>().values().iter().map(|v| f64::from(*v)))
            }
            DataType::Float64 => values.extend(array.as_primitive::<Float64Type>().values()),
            DataType::Int32 => values.extend(array.as_primitive::<Int32Type>().values().iter().map(|v| f64::from(*v))),
            DataType::Int16 => values.extend(array.as_primitive::<Int16Type>().values().iter().map(|v| f64::from(*v))),
            other => return Err(format!("{column} has the type {other}; f32, f64, i32 and i16 are studied").into()),
        }
    }
    Ok(values)
}

/// The bins of some rows.
struct Chunk {
    numbers: Vec<u8>,
    bins: usize,
}

impl Chunk {
    fn new(values: &[f64]) -> Self {
        let keys: Vec<i64> = values.iter().map(|value| decimal_key(*value)).collect();
        let mut sorted = keys.clone();
        sorted.sort_unstable();
        // Each bin has its first key and its rows.
        let mut bins: Vec<(i64, usize)> =
            sorted.chunk_by(|one, next| one == next).map(|same| (same[0], same.len())).collect();
        while bins.len() > MOST_BINS {
            let sparsest = (1..bins.len()).min_by_key(|place| bins[place - 1].1 + bins[*place].1).unwrap_or(1);
            let (_, rows) = bins.remove(sparsest);
            bins[sparsest - 1].1 += rows;
        }
        let number = |key: &i64| (bins.partition_point(|(first, _)| first <= key) - 1) as u8;
        Self { numbers: keys.iter().map(number).collect(), bins: bins.len() }
    }

    /// Returns the bitmap of the rows whose bins pass a test.
    fn rows(&self, test: impl Fn(usize) -> bool) -> Bitmap {
        let word =
            |rows: &[u8]| (0..).zip(rows).fold(0, |word, (row, bin)| word | u64::from(test((*bin).into())) << row);
        self.numbers.chunks(64).map(word).collect()
    }
}

/// Returns a number that grows with the value, and is the same for values between two decimals of two digits.
fn decimal_key(value: f64) -> i64 {
    let magnitude = value.abs();
    if magnitude == 0.0 || !magnitude.is_finite() {
        return 0;
    }
    let exponent = magnitude.log10().floor();
    let digits = (magnitude / 10f64.powf(exponent - 1.0)).floor() as i64;
    let key = (exponent as i64 + 40) * 100 + digits;
    if value < 0.0 { -key } else { key }
}

/// Bins of rows in an encoding.
trait Encoded {
    /// Returns the size in bytes.
    fn bytes(&self) -> usize;

    /// Returns the rows of a range of bins, and the number of bytes that were read.
    fn find(&self, range: &Range<usize>) -> (Bitmap, usize);
}

type Encode = fn(&Chunk) -> Box<dyn Encoded>;

const ENCODINGS: [(&str, Encode); 8] = [
    ("bytes", |chunk| Box::new(Bytes(chunk.numbers.clone()))),
    ("slices", |chunk| Box::new(Slices::new(chunk))),
    ("runs", |chunk| Box::new(Runs::new(chunk))),
    ("equality", |chunk| Box::new(Equality((0..chunk.bins).map(|bin| chunk.rows(|of| of == bin)).collect()))),
    ("range", |chunk| Box::new(Cumulative((0..chunk.bins).map(|bin| chunk.rows(|of| of <= bin)).collect()))),
    ("interval", |chunk| Box::new(Intervals::new(chunk))),
    ("two levels", |chunk| Box::new(TwoLevels::new(chunk))),
    ("roaring by bin", |chunk| Box::new(Roaring::new(chunk))),
];

/// Times ranges of bins, a share of all bins wide. Returns the mean bytes read of a chunk, and the median time in
/// nanoseconds for 1,000 rows.
fn time(chunks: &[Chunk], encoded: &[Box<dyn Encoded>], divisor: usize) -> Outcome<(f64, f64)> {
    let mut random = Random::new(divisor as u64);
    let (mut bytes, mut times_ns) = (0, Vec::new());
    for (chunk, encoded) in chunks.iter().zip(encoded) {
        let width = (chunk.bins / divisor).max(1);
        for _ in 0..RANGES {
            let start = random.below((chunk.bins - width + 1) as u64) as usize;
            let range = start..start + width;
            let begun = Instant::now();
            let (found, read_bytes) = encoded.find(&range);
            times_ns.push(begun.elapsed().as_secs_f64() * 1e12 / chunk.numbers.len() as f64);
            if found != chunk.rows(|bin| range.contains(&bin)) {
                return Err(format!("the rows of bins {range:?} are wrong").into());
            }
            bytes += read_bytes;
        }
    }
    times_ns.sort_unstable_by(f64::total_cmp);
    Ok((bytes as f64 / (chunks.len() * RANGES) as f64, times_ns[times_ns.len() / 2]))
}

/// Size of bitmaps in bytes.
fn bitmap_bytes(bitmaps: &[Bitmap]) -> usize {
    bitmaps.iter().map(|bitmap| bitmap.len() * 8).sum()
}

fn unite(into: &mut Bitmap, other: &[u64]) {
    into.iter_mut().zip(other).for_each(|(word, other)| *word |= other);
}

struct Bytes(Vec<u8>);

impl Encoded for Bytes {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let (first, last) = (range.start as u8, (range.end - 1) as u8);
        let word = |rows: &[u8]| {
            let mut found = [0u8; 64];
            found.iter_mut().zip(rows).for_each(|(found, bin)| *found = u8::from(*bin >= first && *bin <= last));
            let (groups, _) = found.as_chunks::<8>();
            groups.iter().enumerate().fold(0, |word, (group, bytes)| {
                let byte = u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
                word | byte << (8 * group)
            })
        };
        (self.0.chunks(64).map(word).collect(), self.0.len())
    }
}

/// A bitmap for each bit of the numbers, the lowest first.
struct Slices {
    slices: Vec<Bitmap>,
    rows: usize,
}

impl Slices {
    fn new(chunk: &Chunk) -> Self {
        let bits = (usize::BITS - (chunk.bins - 1).leading_zeros()) as usize;
        let slices = (0..bits).map(|bit| chunk.rows(|bin| bin >> bit & 1 == 1)).collect();
        Self { slices, rows: chunk.numbers.len() }
    }
}

impl Encoded for Slices {
    fn bytes(&self) -> usize {
        bitmap_bytes(&self.slices)
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let (low, high) = (range.start, range.end - 1);
        let words = self.rows.div_ceil(64);
        let mut found = vec![0; words];
        for (at, word) in found.iter_mut().enumerate() {
            let (mut outside, mut equal_low, mut equal_high) = (0u64, u64::MAX, u64::MAX);
            for (bit, slice) in self.slices.iter().enumerate().rev() {
                let slice = slice[at];
                let low = (low as u64 >> bit & 1).wrapping_neg();
                let high = (high as u64 >> bit & 1).wrapping_neg();
                outside |= (equal_low & low & !slice) | (equal_high & !high & slice);
                equal_low &= !(slice ^ low);
                equal_high &= !(slice ^ high);
            }
            *word = !outside;
        }
        if let (Some(last), used @ 1..) = (found.last_mut(), self.rows % 64) {
            *last &= (1 << used) - 1;
        }
        (found, self.bytes())
    }
}

/// The bin of consecutive rows, and the row after the last of them.
struct Runs {
    runs: Vec<(u8, u32)>,
    bytes: usize,
    words: usize,
}

impl Runs {
    fn new(chunk: &Chunk) -> Self {
        let (mut runs, mut end, mut bytes) = (Vec::new(), 0, 0);
        for same in chunk.numbers.chunk_by(|one, next| one == next) {
            end += same.len() as u32;
            runs.push((same[0], end));
            // The bin, and the number of rows in seven bits a byte.
            bytes += 1 + (usize::BITS - same.len().leading_zeros()).div_ceil(7) as usize;
        }
        Self { runs, bytes, words: chunk.numbers.len().div_ceil(64) }
    }
}

fn fill(bitmap: &mut Bitmap, rows: Range<usize>) {
    for row in rows {
        bitmap[row / 64] |= 1 << (row % 64);
    }
}

impl Encoded for Runs {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let (mut found, mut start) = (vec![0; self.words], 0);
        for (bin, end) in &self.runs {
            if range.contains(&usize::from(*bin)) {
                fill(&mut found, start..*end as usize);
            }
            start = *end as usize;
        }
        (found, self.bytes)
    }
}

/// A bitmap for each bin.
struct Equality(Vec<Bitmap>);

impl Encoded for Equality {
    fn bytes(&self) -> usize {
        bitmap_bytes(&self.0)
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let mut found = vec![0; self.0[0].len()];
        self.0[range.clone()].iter().for_each(|bitmap| unite(&mut found, bitmap));
        (found, bitmap_bytes(&self.0[range.clone()]))
    }
}

/// A bitmap of the rows up to each bin (Chan and Ioannidis call it range encoding).
struct Cumulative(Vec<Bitmap>);

impl Encoded for Cumulative {
    fn bytes(&self) -> usize {
        // All rows are in the last one.
        bitmap_bytes(&self.0[1..])
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let mut found = self.0[range.end - 1].clone();
        let mut read_bytes = found.len() * 8;
        if let Some(below) = range.start.checked_sub(1) {
            found.iter_mut().zip(&self.0[below]).for_each(|(word, below)| *word &= !below);
            read_bytes += found.len() * 8;
        }
        (found, read_bytes)
    }
}

/// A bitmap of the rows of half of the bins, from each bin of the first half on (interval encoding).
struct Intervals {
    bitmaps: Vec<Bitmap>,
    half: usize,
    all: Bitmap,
}

impl Intervals {
    fn new(chunk: &Chunk) -> Self {
        let half = chunk.bins.div_ceil(2);
        let bitmaps =
            (0..=chunk.bins - half).map(|from| chunk.rows(|bin| (from..from + half).contains(&bin))).collect();
        Self { bitmaps, half, all: chunk.rows(|_| true) }
    }

    fn last(&self) -> usize {
        self.bitmaps.len() - 1
    }

    /// Returns the rows of the bins from a bin on.
    fn from(&self, bin: usize) -> Bitmap {
        let join = |one: &Bitmap, other: &Bitmap, join: fn(u64, u64) -> u64| -> Bitmap {
            one.iter().zip(other).map(|(one, other)| join(*one, *other)).collect()
        };
        let last = &self.bitmaps[self.last()];
        match bin {
            0 => self.all.clone(),
            bin if bin <= self.last() => join(&self.bitmaps[bin], last, |one, other| one | other),
            bin if bin >= self.last() + self.half => vec![0; self.all.len()],
            // Of the last half, those that no earlier interval ends before.
            bin => join(last, &self.bitmaps[bin - self.half], |one, other| one & !other),
        }
    }
}

impl Encoded for Intervals {
    fn bytes(&self) -> usize {
        bitmap_bytes(&self.bitmaps)
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let (mut found, above) = (self.from(range.start), self.from(range.end));
        found.iter_mut().zip(above).for_each(|(word, above)| *word &= !above);
        let bitmaps = if range.start == 0 { 2 } else { 4 };
        (found, bitmaps * self.all.len() * 8)
    }
}

/// A bitmap for each bin, and one for each group of consecutive bins.
struct TwoLevels {
    fine: Equality,
    coarse: Equality,
}

impl TwoLevels {
    fn new(chunk: &Chunk) -> Self {
        let coarse = (0..chunk.bins.div_ceil(COARSE)).map(|group| chunk.rows(|bin| bin / COARSE == group)).collect();
        let fine = (0..chunk.bins).map(|bin| chunk.rows(|of| of == bin)).collect();
        Self { fine: Equality(fine), coarse: Equality(coarse) }
    }
}

impl Encoded for TwoLevels {
    fn bytes(&self) -> usize {
        self.fine.bytes() + self.coarse.bytes()
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let groups = range.start.div_ceil(COARSE)..range.end / COARSE;
        if groups.start >= groups.end {
            return self.fine.find(range);
        }
        let (mut found, mut read_bytes) = self.coarse.find(&groups);
        for rest in [range.start..groups.start * COARSE, groups.end * COARSE..range.end] {
            let (rows, bytes) = self.fine.find(&rest);
            unite(&mut found, &rows);
            read_bytes += bytes;
        }
        (found, read_bytes)
    }
}

/// The rows of a bin, in whatever is smallest (Lemire and others). A chunk has fewer than 65,536 rows.
enum Container {
    Array(Vec<u16>),
    Bitmap(Bitmap),
    Runs(Vec<(u16, u16)>),
}

impl Container {
    fn new(rows: &[u16], words: usize) -> Self {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for row in rows {
            match runs.last_mut() {
                Some((_, last)) if u32::from(*last) + 1 == u32::from(*row) => *last = *row,
                _ => runs.push((*row, *row)),
            }
        }
        let (array_bytes, run_bytes) = (2 * rows.len(), 4 * runs.len());
        if run_bytes < array_bytes.min(words * 8) {
            return Self::Runs(runs);
        }
        if array_bytes <= words * 8 {
            return Self::Array(rows.to_vec());
        }
        let mut bitmap = vec![0; words];
        rows.iter().for_each(|row| bitmap[usize::from(*row) / 64] |= 1 << (row % 64));
        Self::Bitmap(bitmap)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Array(rows) => 2 * rows.len(),
            Self::Bitmap(words) => 8 * words.len(),
            Self::Runs(runs) => 4 * runs.len(),
        }
    }

    fn unite_into(&self, found: &mut Bitmap) {
        match self {
            Self::Array(rows) => rows.iter().for_each(|row| found[usize::from(*row) / 64] |= 1 << (row % 64)),
            Self::Bitmap(words) => unite(found, words),
            Self::Runs(runs) => {
                runs.iter().for_each(|(first, last)| fill(found, (*first).into()..usize::from(*last) + 1))
            }
        }
    }
}

struct Roaring {
    containers: Vec<Container>,
    words: usize,
}

impl Roaring {
    fn new(chunk: &Chunk) -> Self {
        let words = chunk.numbers.len().div_ceil(64);
        let mut rows = vec![Vec::new(); chunk.bins];
        for (row, bin) in (0u16..).zip(&chunk.numbers) {
            rows[usize::from(*bin)].push(row);
        }
        Self { containers: rows.iter().map(|rows| Container::new(rows, words)).collect(), words }
    }
}

impl Encoded for Roaring {
    fn bytes(&self) -> usize {
        self.containers.iter().map(Container::bytes).sum()
    }

    fn find(&self, range: &Range<usize>) -> (Bitmap, usize) {
        let mut found = vec![0; self.words];
        let containers = &self.containers[range.clone()];
        containers.iter().for_each(|container| container.unite_into(&mut found));
        (found, containers.iter().map(Container::bytes).sum())
    }
}
