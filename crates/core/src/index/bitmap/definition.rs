//! The definition of a bitmap index: its columns, and the precision of its bins.

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::error::{Error, Result, UsageError};
use crate::format::bitmap::bin_numbers::Encoding;
use crate::index::columns::{check_names, position};
use crate::schema::{KeyOrder, Schema};
use crate::store::SidecarDescriptor;

/// Number of digits of the edges of bins, by default.
const DEFAULT_PRECISION: u32 = 2;

/// Maximum number of digits of the edges of bins. At most 256 bins cannot use more.
const MAX_PRECISION: u32 = 4;

/// Maximum length of a definition in bytes, since it is the name of a folder.
const MAX_NAME_BYTES: usize = 200;

/// The columns of a bitmap index, and the precision of its bins.
///
/// ```
/// use turbidite::BitmapDefinition;
/// let velocities: BitmapDefinition = "bitmap:ux,uy,uz".parse()?;
/// assert_eq!((velocities.columns().len(), velocities.precision()), (3, 2));
/// assert_eq!("bitmap:ux,precision=3".parse::<BitmapDefinition>()?.to_string(), "bitmap:ux,precision=3");
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitmapDefinition {
    columns: Vec<String>,
    precision: u32,
    /// The only encoding of the bins of rows. `None` for the smallest of each row group.
    encoding: Option<Encoding>,
}

impl BitmapDefinition {
    /// The beginning of a definition.
    pub(crate) const PREFIX: &str = "bitmap:";

    /// The method in the description of the index.
    pub(crate) const METHOD: &str = "bitmap";

    /// Defines the index of some columns, whose bins have edges of at most `precision` digits.
    ///
    /// # Errors
    /// A usage error if there is no column, a column is listed twice or cannot be part of a folder's name, there are
    /// too many columns, or the precision is not 1 to 4.
    pub fn new(columns: Vec<String>, precision: u32) -> Result<Self> {
        let wrong = |what: String| Err(UsageError::Option { option: "index", what }.into());
        if !(1..=MAX_PRECISION).contains(&precision) {
            return wrong(format!("a bitmap index has a precision of 1 to {MAX_PRECISION} digits, not {precision}"));
        }
        check_names(&columns, "a bitmap index")?;
        let definition = Self { columns, precision, encoding: None };
        if definition.columns.is_empty() {
            return wrong("a bitmap index needs a column: bitmap:ux,uy,uz".to_owned());
        }
        if definition.name().len() > MAX_NAME_BYTES {
            let what = "the names of a bitmap index's columns have at most 192 bytes; make several indexes";
            return wrong(what.to_owned());
        }
        Ok(definition)
    }

    /// Returns whether a text is meant as the definition of a bitmap index.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with(Self::PREFIX)
    }

    /// Returns the name of the index: its definition without precision and encoding.
    pub fn name(&self) -> String {
        format!("{}{}", Self::PREFIX, self.columns.join(","))
    }

    /// Returns the names of the indexed columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// Returns the maximum number of digits of the edges of bins.
    pub fn precision(&self) -> u32 {
        self.precision
    }

    /// Returns the only encoding of the bins of rows, if there is one.
    pub(crate) fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    /// Returns the description of this index of a dataset.
    pub(crate) fn describe(&self, dataset: Uuid) -> SidecarDescriptor {
        SidecarDescriptor::new(&self.name(), Self::METHOD, self.columns.clone(), self.precision, dataset)
    }

    /// Returns the positions of the columns in a schema.
    ///
    /// # Errors
    /// A usage error if there is no such column, or it has no numbers.
    pub(crate) fn positions(&self, schema: &Schema) -> Result<Vec<usize>> {
        let position = |name: &String| {
            let position = position(schema, name)?;
            if KeyOrder::new(schema.columns()[position].data_type).is_none() {
                let what = format!("column '{name}' has no numbers, so it cannot have a bitmap index");
                return Err(Error::from(UsageError::Option { option: "index", what }));
            }
            Ok(position)
        };
        self.columns.iter().map(position).collect()
    }
}

impl FromStr for BitmapDefinition {
    type Err = Error;

    /// Parses `bitmap:COLUMN,…[,precision=DIGITS]`. Tests force an encoding by `,encoding=NAME`.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: String| Error::from(UsageError::Option { option: "index", what });
        let listed = text.strip_prefix(Self::PREFIX).ok_or_else(|| {
            wrong(format!("'{text}' is not the definition of a bitmap index, such as bitmap:ux,uy,uz"))
        })?;
        let mut columns: Vec<String> = listed.split(',').map(|name| name.trim().to_owned()).collect();
        let (mut precision, mut encoding) = (None, None);
        while let Some((name, value)) = columns.last().and_then(|last| last.split_once('=')) {
            match name {
                "precision" if precision.is_none() => {
                    let digits = value.parse().map_err(|_| wrong(format!("'{value}' is not a number of digits")))?;
                    precision = Some(digits);
                }
                "encoding" if encoding.is_none() => {
                    let found = Encoding::ALL.into_iter().find(|encoding| encoding.name() == value);
                    let unknown = || wrong(format!("'{value}' is not an encoding: bytes, slices or runs"));
                    encoding = Some(found.ok_or_else(unknown)?);
                }
                _ => break,
            }
            columns.pop();
        }
        Ok(Self { encoding, ..Self::new(columns, precision.unwrap_or(DEFAULT_PRECISION))? })
    }
}

impl fmt::Display for BitmapDefinition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())?;
        if self.precision != DEFAULT_PRECISION {
            write!(f, ",precision={}", self.precision)?;
        }
        self.encoding.map_or(Ok(()), |encoding| write!(f, ",encoding={}", encoding.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType};

    #[test]
    fn definitions_are_printed_as_they_are_parsed() {
        for text in [
            "bitmap:ux",
            "bitmap:ux,uy,uz",
            "bitmap:ux,precision=1",
            "bitmap:precision,precision=4",
            "bitmap:ux,precision=3,encoding=slices",
            "bitmap:encoding,encoding=runs",
        ] {
            assert_eq!(text.parse::<BitmapDefinition>().unwrap().to_string(), text);
        }
        assert_eq!("bitmap:ux,precision=2".parse::<BitmapDefinition>().unwrap().to_string(), "bitmap:ux");
        let forced: BitmapDefinition = "bitmap:ux,encoding=bytes,precision=3".parse().unwrap();
        assert_eq!((forced.name().as_str(), forced.precision()), ("bitmap:ux", 3));
    }

    #[test]
    fn wrong_definitions_are_refused() {
        let names: Vec<String> = (0..40).map(|number| format!("column{number}")).collect();
        let long = format!("bitmap:{}", names.join(","));
        assert!(long.parse::<BitmapDefinition>().unwrap_err().to_string().contains("make several indexes"));
        for text in [
            "ux",
            "bitmap:",
            "bitmap:ux,ux",
            "bitmap:ux,,uy",
            "bitmap:a/b",
            "bitmap:ux,precision=0",
            "bitmap:ux,precision=5",
            "bitmap:ux,precision=x",
            "bitmap:precision=2",
            "bitmap:precision=2,ux",
            "bitmap:ux,precision=2,precision=3",
            "bitmap:ux,encoding=roaring",
            "bitmap:ux,encoding=",
        ] {
            assert!(text.parse::<BitmapDefinition>().is_err(), "{text}");
        }
        let columns = vec![Column::new("tag", DataType::FixedBytes(4)), Column::new("ux", DataType::F32)];
        let schema = Schema::new(columns, "ux").unwrap();
        let positions = |text: &str| text.parse::<BitmapDefinition>().unwrap().positions(&schema);
        assert_eq!(positions("bitmap:ux").unwrap(), [1]);
        assert!(positions("bitmap:tag").unwrap_err().to_string().contains("no numbers"));
        assert!(positions("bitmap:uy").unwrap_err().to_string().contains("no column"));
    }
}
