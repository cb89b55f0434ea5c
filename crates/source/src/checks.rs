//! Checks a file's header. `records = "i32@111"` checks the number of records, and `magic = "fe ca ef be ad de@5"`
//! checks bytes that are the same in every file. Both settings state a byte offset in the header. The bytes of a magic
//! are hexadecimal.
//!
//! The settings have the same meaning in layout files and in the preload library's configuration.
//!
//! Invariant: the checks read only the given header bytes.

use serde::Deserialize;

/// A setting that is a string or a list of strings.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "expected a text such as \"fe ca ef be@5\", or a list of such texts")]
pub enum Texts {
    /// A string.
    One(String),
    /// A list.
    Several(Vec<String>),
}

/// Bytes that every file contains at the same offset.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Magic {
    text: String,
    bytes: Vec<u8>,
    offset: usize,
}

/// The type of a record count in a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountType {
    I32,
    U32,
    I64,
    U64,
}

/// The offset and type of a header's record count.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Count {
    text: String,
    count_type: CountType,
    offset: usize,
}

/// The checks of every file's header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Checks {
    magic: Vec<Magic>,
    records: Option<Count>,
}

/// The lengths of a file and of its parts, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Lengths {
    /// Length of the file.
    pub file: u64,
    /// Length of its header.
    pub header: u64,
    /// Length of each record.
    pub record: u64,
}

impl CountType {
    fn width(self) -> usize {
        match self {
            Self::I32 | Self::U32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }

    /// Decodes the value from the first bytes. Returns `None` if there are too few bytes.
    fn read(self, bytes: &[u8]) -> Option<i128> {
        Some(match self {
            Self::I32 => i32::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::U32 => u32::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::I64 => i64::from_le_bytes(*bytes.first_chunk()?).into(),
            Self::U64 => u64::from_le_bytes(*bytes.first_chunk()?).into(),
        })
    }
}

/// Splits `WHAT@OFFSET`.
fn split(text: &str) -> Option<(&str, usize)> {
    let (what, offset) = text.split_once('@')?;
    Some((what.trim(), offset.trim().parse().ok()?))
}

/// Checks that a value lies within the header.
fn check_place(setting: &str, offset: usize, width: usize, header_bytes: u64) -> Result<(), String> {
    match offset.checked_add(width) {
        Some(end) if end as u64 <= header_bytes => Ok(()),
        _ => {
            Err(format!("{setting} ends beyond the header of {header_bytes} bytes; correct the offset or header_bytes"))
        }
    }
}

fn parse_magic(text: &str, header_bytes: u64) -> Result<Magic, String> {
    let setting = format!("magic = \"{text}\"");
    let digits = |what: &str| what.chars().filter(|letter| !letter.is_whitespace()).collect::<Vec<_>>();
    let byte = |pair: &[char]| match pair {
        [high, low] => Some((high.to_digit(16)? * 16 + low.to_digit(16)?) as u8),
        _ => None,
    };
    let parsed = split(text).and_then(|(what, offset)| {
        let bytes = digits(what).chunks(2).map(byte).collect::<Option<Vec<u8>>>()?;
        (!bytes.is_empty()).then_some((bytes, offset))
    });
    let (bytes, offset) = parsed.ok_or_else(|| {
        format!("{setting} is not BYTES@OFFSET: two hexadecimal digits for each byte, as in \"fe ca ef be ad de@5\"")
    })?;
    check_place(&setting, offset, bytes.len(), header_bytes)?;
    Ok(Magic { text: text.to_owned(), bytes, offset })
}

fn parse_count(text: &str, header_bytes: u64) -> Result<Count, String> {
    let setting = format!("records = \"{text}\"");
    let parsed = split(text).and_then(|(name, offset)| {
        let count_type = match name {
            "i32" => CountType::I32,
            "u32" => CountType::U32,
            "i64" => CountType::I64,
            "u64" => CountType::U64,
            _ => return None,
        };
        Some((count_type, offset))
    });
    let (count_type, offset) = parsed.ok_or_else(|| {
        format!("{setting} is not TYPE@OFFSET: i32, u32, i64 or u64, and a byte offset, as in \"i32@111\"")
    })?;
    check_place(&setting, offset, count_type.width(), header_bytes)?;
    Ok(Count { text: text.to_owned(), count_type, offset })
}

/// Returns bytes in the hexadecimal notation of a magic.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

impl Checks {
    /// Parses the settings `records` and `magic`.
    ///
    /// # Errors
    /// Returns the mistake, with the name of the setting.
    pub fn parse(records: Option<&str>, magic: Option<&Texts>, header_bytes: u64) -> Result<Self, String> {
        let magic = match magic {
            None => &[][..],
            Some(Texts::One(text)) => std::slice::from_ref(text),
            Some(Texts::Several(texts)) => texts.as_slice(),
        };
        Ok(Self {
            magic: magic.iter().map(|text| parse_magic(text, header_bytes)).collect::<Result<_, _>>()?,
            records: records.map(|text| parse_count(text, header_bytes)).transpose()?,
        })
    }

    /// Returns whether headers state the number of records.
    pub(crate) fn count_records(&self) -> bool {
        self.records.is_some()
    }

    /// Returns the number of header bytes that the checks need.
    pub fn header_bytes(&self) -> usize {
        let magic = self.magic.iter().map(|magic| magic.offset + magic.bytes.len());
        let count = self.records.iter().map(|count| count.offset + count.count_type.width());
        magic.chain(count).max().unwrap_or(0)
    }

    /// Checks a file against the settings; `header` holds its first bytes.
    ///
    /// # Errors
    /// Returns the difference, without the file's name.
    pub fn check(&self, header: &[u8], lengths: Lengths) -> Result<(), String> {
        for Magic { text, bytes, offset } in &self.magic {
            let found = header.get(*offset..*offset + bytes.len()).unwrap_or_default();
            if found != bytes {
                return Err(format!(
                    "has the bytes {} at {offset}, expected magic = \"{text}\"; the file has another format \
                     or byte order",
                    hexadecimal(found)
                ));
            }
        }
        let Some(count) = &self.records else { return Ok(()) };
        let stated = header.get(count.offset..).and_then(|bytes| count.count_type.read(bytes));
        let advice = "header_bytes or record_bytes is wrong, or the file is incomplete";
        check_count(stated.unwrap_or(-1), lengths)
            .map_err(|what| format!("{what} (records = \"{}\"); {advice}", count.text))
    }
}

/// Checks a header's number of records against the file's length.
pub(crate) fn check_count(stated: i128, lengths: Lengths) -> Result<(), String> {
    let Lengths { file, header, record } = lengths;
    let body = file.saturating_sub(header);
    let (held, rest) = (body / record, body % record);
    if stated == i128::from(held) && rest == 0 {
        return Ok(());
    }
    let rest = if rest > 0 { format!(" and {rest} more bytes") } else { String::new() };
    Err(format!(
        "has a header that states {stated} records, but its {file} bytes hold {held}{rest}, with a header of \
         {header} bytes and records of {record}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn several(texts: &[&str]) -> Texts {
        Texts::Several(texts.iter().map(|&text| text.to_owned()).collect())
    }

    #[test]
    fn settings_are_parsed() {
        let checks = Checks::parse(Some("i64@8"), Some(&several(&["FEca ef@5", "0 8 @ 0"])), 16).unwrap();
        assert_eq!(checks.header_bytes(), 16);
        assert_eq!((checks.magic[0].bytes.as_slice(), checks.magic[0].offset), (&[0xfe, 0xca, 0xef][..], 5));
        assert_eq!((checks.magic[1].bytes.as_slice(), checks.magic[1].offset), (&[8][..], 0));
        assert_eq!(Checks::parse(None, None, 0).unwrap(), Checks::default());
        for (records, magic, what) in [
            (Some("i32"), None, "records = \"i32\" is not TYPE@OFFSET"),
            (Some("i16@0"), None, "i32, u32, i64 or u64"),
            (Some("i32@-1"), None, "is not TYPE@OFFSET"),
            (Some("i32@13"), None, "records = \"i32@13\" ends beyond the header of 16 bytes"),
            (Some("u64@18446744073709551615"), None, "ends beyond the header of 16 bytes"),
            (None, Some("fe c@5"), "magic = \"fe c@5\" is not BYTES@OFFSET"),
            (None, Some("@5"), "is not BYTES@OFFSET"),
            (None, Some("fe"), "is not BYTES@OFFSET"),
            (None, Some("8,2@0"), "two hexadecimal digits"),
            (None, Some("fe ca@15"), "ends beyond the header of 16 bytes; correct the offset"),
        ] {
            let magic = magic.map(|text| Texts::One(text.to_owned()));
            let said = Checks::parse(records, magic.as_ref(), 16).unwrap_err();
            assert!(said.contains(what), "{said}");
        }
    }

    #[test]
    fn files_are_compared() {
        let checks = Checks::parse(Some("i32@4"), Some(&several(&["fe ca@0", "01@2"])), 8).unwrap();
        let lengths = |file| Lengths { file, header: 8, record: 32 };
        let header = [0xfe, 0xca, 1, 0, 3, 0, 0, 0];
        assert_eq!(checks.check(&header, lengths(104)), Ok(()));
        let said = |header: &[u8], file| checks.check(header, lengths(file)).unwrap_err();
        let longer = said(&header, 136);
        assert!(
            longer.contains("states 3 records, but its 136 bytes hold 4, with a header of 8 bytes and records of 32"),
            "{longer}"
        );
        assert!(longer.contains("(records = \"i32@4\"); header_bytes or record_bytes is wrong"), "{longer}");
        assert!(said(&header, 105).contains("hold 3 and 1 more bytes"));
        assert!(said(&[0xfe, 0xca, 1, 0, 255, 255, 255, 255], 104).contains("states -1 records"));
        assert!(said(&[0xca, 0xfe, 1, 0, 3, 0, 0, 0], 104).contains("bytes ca fe at 0, expected magic = \"fe ca@0\""));
        assert!(said(&[0xfe, 0xca, 2, 0, 3, 0, 0, 0], 104).contains("bytes 02 at 2, expected magic = \"01@2\""));
        // The header is too short.
        assert!(said(&header[..5], 5).contains("states -1"));
        for (count_type, largest) in
            [("u32", u128::from(u32::MAX)), ("i64", i64::MAX as u128), ("u64", u64::MAX as u128)]
        {
            let checks = Checks::parse(Some(&format!("{count_type}@0")), None, 8).unwrap();
            let header = (largest as u64).to_le_bytes();
            let said = checks.check(&header, lengths(8)).unwrap_err();
            assert!(said.contains(&format!("states {largest} records")), "{said}");
        }
    }
}
