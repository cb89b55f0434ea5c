//! The bins of one column in one row group.

use crate::schema::{KeyOrder, Value};

/// Maximum number of bins of a column in a row group, so that a number of a bin fits a byte.
pub(crate) const MAX_BINS: usize = 256;

/// Rows of a row group whose values lie in a closed interval, or are NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bin {
    /// Ordinal of the smallest value.
    pub(crate) least: u64,
    /// Ordinal of the largest value.
    pub(crate) greatest: u64,
    /// Number of rows, at least 1.
    pub(crate) rows: u32,
}

/// The bins of a column in a row group: disjoint, in the order of their values. NaN has the last bin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Bins {
    order: KeyOrder,
    bins: Vec<Bin>,
    /// Number of bins with numbers.
    numbers: usize,
    /// Number of rows in the bins before each bin, and in all bins.
    rows_before: Vec<u64>,
}

impl Bins {
    /// Creates bins in ascending order, at most [`MAX_BINS`].
    pub(crate) fn new(order: KeyOrder, bins: Vec<Bin>) -> Self {
        debug_assert!(bins.len() <= MAX_BINS && bins.is_sorted_by(|one, next| one.greatest < next.least));
        let numbers = bins.partition_point(|bin| !order.is_nan(bin.least));
        let mut rows_before = Vec::with_capacity(bins.len() + 1);
        rows_before.push(0);
        rows_before.extend(bins.iter().scan(0, |rows, bin| {
            *rows += u64::from(bin.rows);
            Some(*rows)
        }));
        Self { order, bins, numbers, rows_before }
    }

    /// Returns the bins.
    pub(crate) fn get(&self) -> &[Bin] {
        &self.bins
    }

    /// Returns the number of bins with numbers: all but NaN's.
    pub(crate) fn numbers(&self) -> usize {
        self.numbers
    }

    /// Returns the number of rows in some consecutive bins.
    pub(crate) fn rows(&self, bins: &std::ops::Range<usize>) -> u64 {
        self.rows_before[bins.end] - self.rows_before[bins.start]
    }

    /// Returns the memory that the bins take, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        (size_of::<Self>() + size_of_val(&*self.bins) + size_of_val(&*self.rows_before)) as u64
    }

    /// Returns the smallest and the largest value of some consecutive bins of numbers.
    pub(crate) fn range(&self, bins: &std::ops::Range<usize>) -> Option<(Value, Value)> {
        let (first, last) = (self.bins.get(bins.start)?, self.bins.get(bins.end.checked_sub(1)?)?);
        Some((self.order.value(first.least), self.order.value(last.greatest)))
    }

    /// Encodes the bins.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let width = self.order.data_type().width();
        let mut out = Vec::with_capacity(self.bins.len() * (2 * width + 4));
        for bin in &self.bins {
            for ordinal in [bin.least, bin.greatest] {
                match self.order.value(ordinal) {
                    // The low bytes of a wide integer are those of a narrow one.
                    Value::Int(value) => out.extend_from_slice(&value.to_le_bytes()[..width]),
                    Value::Float(value) if width == 4 => out.extend_from_slice(&(value as f32).to_le_bytes()),
                    Value::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
                }
            }
            out.extend_from_slice(&bin.rows.to_le_bytes());
        }
        out
    }

    /// Decodes the bins of `rows` rows. The error describes the mismatch.
    pub(crate) fn decode(bytes: &[u8], order: KeyOrder, rows: u32) -> Result<Self, String> {
        let width = order.data_type().width();
        let entry_bytes = 2 * width + 4;
        if !bytes.len().is_multiple_of(entry_bytes) || bytes.len() / entry_bytes > MAX_BINS {
            return Err(format!("{} bytes are no list of at most {MAX_BINS} bins", bytes.len()));
        }
        let (mut bins, mut total, mut previous) = (Vec::with_capacity(bytes.len() / entry_bytes), 0u64, None);
        for (number, entry) in bytes.chunks_exact(entry_bytes).enumerate() {
            let (least, greatest) = (order.ordinal(entry), order.ordinal(&entry[width..]));
            let mut raw = [0; 4];
            raw.copy_from_slice(&entry[2 * width..]);
            let bin = Bin { least, greatest, rows: u32::from_le_bytes(raw) };
            let is_mixed = order.is_nan(greatest) && !order.is_nan(least);
            if least > greatest || is_mixed || previous.is_some_and(|previous| previous >= least) {
                return Err(format!("bin {number} is out of order"));
            }
            if bin.rows == 0 {
                return Err(format!("bin {number} has no rows"));
            }
            previous = Some(greatest);
            total += u64::from(bin.rows);
            bins.push(bin);
        }
        if total != u64::from(rows) {
            return Err(format!("its bins have {total} rows, the row group has {rows}"));
        }
        Ok(Self::new(order, bins))
    }
}

#[cfg(test)]
impl Bin {
    /// Creates the bin of NaN.
    pub(crate) fn nan(rows: u32) -> Self {
        use crate::schema::NAN_ORDINAL;
        Self { least: NAN_ORDINAL, greatest: NAN_ORDINAL, rows }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DataType;

    #[test]
    fn bins_of_every_type_round_trip() {
        let values = [Value::Int(-3), Value::Int(0), Value::Int(100)];
        for data_type in [DataType::I8, DataType::I16, DataType::I32, DataType::I64, DataType::F32, DataType::F64] {
            let order = KeyOrder::new(data_type).unwrap();
            let bin = |value: Value, rows| {
                let ordinal = order.ordinal_of(value);
                Bin { least: ordinal, greatest: ordinal + 1, rows }
            };
            let mut bins: Vec<Bin> = values.iter().zip(1..).map(|(value, rows)| bin(*value, rows)).collect();
            if data_type.is_float() {
                bins.push(Bin::nan(4));
            }
            let bins = Bins::new(order, bins);
            let rows = bins.get().iter().map(|bin| bin.rows).sum();
            assert_eq!(Bins::decode(&bins.encode(), order, rows), Ok(bins.clone()), "{data_type}");
            assert!(Bins::decode(&bins.encode(), order, rows + 1).unwrap_err().contains("rows"));
            assert_eq!(bins.numbers(), 3);
            assert_eq!(
                (bins.rows(&(0..0)), bins.rows(&(1..3)), bins.rows(&(0..bins.get().len()))),
                (0, 5, rows.into())
            );
        }
        let order = KeyOrder::new(DataType::U64).unwrap();
        let bins = Bins::new(order, vec![Bin { least: 7, greatest: u64::MAX, rows: 2 }]);
        assert_eq!(Bins::decode(&bins.encode(), order, 2), Ok(bins));
    }

    #[test]
    fn wrong_bins_are_refused() {
        let order = KeyOrder::new(DataType::U8).unwrap();
        let entry = |least: u8, greatest: u8, rows: u32| [&[least, greatest][..], &rows.to_le_bytes()].concat();
        for (bytes, what) in [
            (entry(3, 2, 5), "out of order"),
            ([entry(1, 4, 2), entry(4, 6, 3)].concat(), "out of order"),
            ([entry(1, 4, 5), entry(5, 6, 0)].concat(), "no rows"),
            ([entry(1, 4, u32::MAX), entry(5, 6, 6)].concat(), "the row group has 5"),
            (vec![0; 5], "no list"),
            (vec![0; 257 * 6], "no list"),
            (Vec::new(), "the row group has 5"),
        ] {
            let error = Bins::decode(&bytes, order, 5).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
