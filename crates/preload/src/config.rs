//! The configuration: which files become which dataset.
//!
//! ```toml
//! [[dataset]]
//! files = "particle/T.{epoch}/eparticle.{epoch}.{rank}"  # the end of their paths
//! out = "/scratch/run/eparticle.tbd"
//! key = "energy"
//! derive = ["energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1"]
//! header_bytes = 115            # skipped at the beginning of each file
//! # record_bytes = 48           # when records are longer than their fields
//! # mode = "replace"            # spool the files, and remove them once they are indexed; default "keep"
//! # spool = "/dev/shm"
//! # if_exists = "replace"       # or "skip"; default "error"
//! # truncate_after = 2000       # remove later epochs at the start, for a restart
//! # break_lock = true
//! # files_per_epoch = 16        # when an epoch's files are complete; default one for each rank
//! # drop = ["w"]
//! # stall_s = 60                # when ranks give up one that does not come; default 300
//!
//! [[dataset.field]]
//! name = "ux"
//! type = "f32"
//! # unit, offset: as in the layout files of `turbidite ingest`
//!
//! [[dataset.constant]]          # a number in each file's header, for derivations
//! name = "header.x0"
//! type = "f32"
//! offset = 63
//! ```
//!
//! With `format = "lammps"` the files are LAMMPS' binary dumps, which say themselves how long their headers are and
//! what their columns are called. A field is a column of the file, in any order, and its type what it is stored as;
//! `header.xlo` to `header.zhi`, `header.xy`, `header.xz` and `header.yz` are the box. `files` without `{epoch}`
//! stands for files of several steps, which are epochs each, while they are still being written.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use turbidite::expr::DerivationSet;
use turbidite::{Column, DataType, IfExists, Schema};

use crate::lammps;
use crate::pattern::Pattern;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    dataset: Vec<Written>,
}

/// A dataset as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    files: String,
    out: PathBuf,
    key: String,
    #[serde(default)]
    derive: Vec<String>,
    #[serde(default)]
    drop: Vec<String>,
    #[serde(default)]
    format: Format,
    #[serde(default)]
    header_bytes: usize,
    record_bytes: Option<usize>,
    #[serde(default)]
    mode: Mode,
    spool: Option<PathBuf>,
    #[serde(default)]
    if_exists: Existing,
    truncate_after: Option<u64>,
    #[serde(default)]
    break_lock: bool,
    files_per_epoch: Option<u64>,
    receivers: Option<u32>,
    memtable_bytes: Option<usize>,
    stall_s: Option<u64>,
    #[serde(rename = "field")]
    fields: Vec<WrittenField>,
    #[serde(rename = "constant", default)]
    constants: Vec<WrittenField>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenField {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
    unit: Option<String>,
    offset: Option<usize>,
}

/// How records lie in a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// One behind the other, behind a header of fixed size.
    #[default]
    Records,
    /// As LAMMPS writes them.
    Lammps,
}

/// What becomes of the program's own files.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// They stay.
    #[default]
    Keep,
    /// They are written to the spool, and removed once their epoch is indexed.
    Replace,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Existing {
    #[default]
    Error,
    Replace,
    Skip,
}

/// A value's place in a record or header.
#[derive(Debug, Clone)]
pub(crate) struct Field {
    pub(crate) column: Column,
    pub(crate) offset: usize,
}

/// One dataset and the files it is made of.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) pattern: Pattern,
    pub(crate) out: PathBuf,
    pub(crate) schema: Schema,
    pub(crate) format: Format,
    pub(crate) header_bytes: usize,
    pub(crate) record_bytes: usize,
    pub(crate) fields: Vec<Field>,
    pub(crate) constants: Vec<Field>,
    pub(crate) derivations: DerivationSet,
    pub(crate) derivation_texts: Vec<String>,
    /// The columns that are stored, as positions among the fields and then the derived ones.
    pub(crate) stored: Vec<usize>,
    pub(crate) mode: Mode,
    pub(crate) spool: PathBuf,
    pub(crate) if_exists: IfExists,
    pub(crate) truncate_after: Option<u64>,
    pub(crate) break_lock: bool,
    pub(crate) files_per_epoch: Option<u64>,
    pub(crate) receivers: Option<u32>,
    pub(crate) memtable_bytes: Option<usize>,
    pub(crate) stall_limit: Option<Duration>,
}

/// The column that is made of `{id}` in a pattern.
const ID: &str = "id";

/// Reads a configuration.
pub(crate) fn read(path: &Path) -> Result<Vec<Plan>, String> {
    let at = |what: String| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| at(error.to_string()))?;
    let document: Document = toml::from_str(&text).map_err(|error| at(error.to_string()))?;
    document.dataset.into_iter().map(|written| plan(written).map_err(at)).collect()
}

fn fields(written: Vec<WrittenField>, follow: bool) -> Result<Vec<Field>, String> {
    let mut fields: Vec<Field> = Vec::new();
    let mut end = 0;
    for WrittenField { name, data_type, unit, offset } in written {
        let data_type: DataType = data_type.parse().map_err(|error: turbidite::SchemaError| error.to_string())?;
        let offset = match offset {
            Some(offset) => offset,
            None if follow => end,
            None => return Err(format!("the constant '{name}' has no offset")),
        };
        end = offset.checked_add(data_type.width()).ok_or_else(|| format!("the offset of '{name}' is too large"))?;
        let column = Column::new(name, data_type);
        fields.push(Field { column: unit.into_iter().fold(column, Column::with_unit), offset });
    }
    Ok(fields)
}

fn end(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.offset + field.column.data_type.width()).max().unwrap_or(0)
}

/// What a format asks of the rest of the configuration.
fn check_format(written: &Written, pattern: &Pattern) -> Result<(), String> {
    if written.format == Format::Records {
        return if pattern.names_epochs() { Ok(()) } else { Err(format!("'{}' has no {{epoch}}", written.files)) };
    }
    let given = written.header_bytes > 0 || written.record_bytes.is_some() || !written.constants.is_empty();
    if given || written.fields.iter().any(|field| field.offset.is_some()) {
        return Err("LAMMPS' files say how long headers and records are: no header_bytes, record_bytes, offset or \
                    constant is needed"
            .to_owned());
    }
    if pattern.names_records() {
        return Err(format!("'{}' has an {{id}}, but LAMMPS' files hold many records", written.files));
    }
    if !pattern.names_epochs() && written.mode == Mode::Replace {
        return Err(format!(
            "'{}' has no {{epoch}}: a file of several steps cannot be replaced step by step; mode \"keep\" it is, or a \
             file for each step",
            written.files
        ));
    }
    Ok(())
}

/// The constants of a dataset's files.
fn constants(written: Vec<WrittenField>, format: Format) -> Result<Vec<Field>, String> {
    if format == Format::Records {
        return fields(written, false);
    }
    let constant =
        |(index, name): (usize, &&str)| Field { column: Column::new(*name, DataType::F64), offset: 8 * index };
    Ok(lammps::BOX.iter().enumerate().map(constant).collect())
}

fn plan(written: Written) -> Result<Plan, String> {
    let pattern = Pattern::parse(&written.files)?;
    check_format(&written, &pattern)?;
    let mut fields = fields(written.fields, true)?;
    if written.format == Format::Lammps
        && let Some(opaque) = fields.iter().find(|field| matches!(field.column.data_type, DataType::FixedBytes(_)))
    {
        return Err(format!("'{}' has to be a number, as all of LAMMPS' columns are", opaque.column.name));
    }
    let record_bytes = written.record_bytes.unwrap_or_else(|| end(&fields));
    if record_bytes == 0 || end(&fields) > record_bytes {
        return Err(format!("a field ends behind a record of {record_bytes} bytes"));
    }
    let constants = self::constants(written.constants, written.format)?;
    if written.format == Format::Records && end(&constants) > written.header_bytes {
        return Err(format!("a constant ends behind a header of {} bytes", written.header_bytes));
    }
    let mut total_bytes = record_bytes;
    if pattern.names_records() {
        // The name becomes eight bytes behind each record.
        fields.push(Field { column: Column::new(ID, DataType::U64), offset: record_bytes });
        total_bytes += 8;
    }
    let columns: Vec<Column> = fields.iter().map(|field| field.column.clone()).collect();
    let known = |name: &str| position(&constants, name).map(|_| 0.0);
    let derivations = DerivationSet::parse(&written.derive, &columns, &known).map_err(|error| error.to_string())?;
    let all: Vec<Column> = columns.into_iter().chain(derivations.columns().cloned()).collect();
    if let Some(unknown) = written.drop.iter().find(|name| all.iter().all(|column| column.name != **name)) {
        return Err(format!("there is no column '{unknown}' to drop"));
    }
    let stored: Vec<usize> = (0..all.len()).filter(|&index| !written.drop.contains(&all[index].name)).collect();
    let kept = stored.iter().map(|&index| all[index].clone()).collect();
    let schema = Schema::new(kept, &written.key).map_err(|error| error.to_string())?;
    let absolute = |path: PathBuf| std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()));
    Ok(Plan {
        pattern,
        out: absolute(written.out)?,
        schema,
        format: written.format,
        header_bytes: written.header_bytes,
        record_bytes: total_bytes,
        fields,
        constants,
        derivations,
        derivation_texts: written.derive,
        stored,
        mode: written.mode,
        spool: written.spool.unwrap_or_else(|| PathBuf::from("/dev/shm")),
        if_exists: match written.if_exists {
            Existing::Error => IfExists::Error,
            Existing::Replace => IfExists::Replace,
            Existing::Skip => IfExists::Skip,
        },
        truncate_after: written.truncate_after,
        break_lock: written.break_lock,
        files_per_epoch: written.files_per_epoch,
        receivers: written.receivers,
        memtable_bytes: written.memtable_bytes,
        stall_limit: written.stall_s.map(Duration::from_secs),
    })
}

/// Position of a constant such as `header.x0`.
fn position(constants: &[Field], name: &str) -> Option<usize> {
    constants.iter().position(|field| field.column.name.eq_ignore_ascii_case(name))
}

impl Plan {
    /// Position of a constant among [`Plan::constants`].
    pub(crate) fn constant(&self, name: &str) -> Option<usize> {
        position(&self.constants, name)
    }

    /// Everything that ranks have to have alike.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{:?}",
            (
                (&self.pattern, &self.out, &self.schema, &self.derivation_texts, self.format),
                (self.header_bytes, self.record_bytes, &self.fields, &self.constants, &self.stored),
                (self.if_exists, self.truncate_after, self.break_lock),
                (self.files_per_epoch, self.receivers, self.memtable_bytes),
            )
        )
    }

    /// Bytes of a record in its file; a name that becomes a column is not among them.
    pub(crate) fn file_record_bytes(&self) -> usize {
        if self.pattern.names_records() { self.record_bytes - 8 } else { self.record_bytes }
    }
}
