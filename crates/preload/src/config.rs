//! The configuration file, which maps source files to datasets.
//!
//! ```toml
//! # quiet = true               # print no summary at the end of a successful run; errors are still printed
//!
//! [[dataset]]
//! files = "particle/T.{epoch}/eparticle.{epoch}.{rank}"  # matched against the end of each path
//! out = "/scratch/run/eparticle.tbd"
//! key = "energy"
//! derive = ["energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1"]
//! header_bytes = 115            # skipped at the beginning of each file
//! # record_bytes = 48           # when records are longer than their fields
//! # records = "i32@111"         # TYPE@OFFSET of a header field that must equal the number of records: i32, u32, i64, u64
//! # magic = "fe ca ef be@5"     # HEX@OFFSET: bytes that every header must contain; or a list of these
//! # mode = "replace"            # spool the files, and remove them once they are indexed; default "keep"
//! # spool = "/dev/shm"
//! # if_exists = "replace"       # or "skip"; default "error"
//! # truncate_after = 2000       # remove later epochs at the start, for a restart
//! # any_source = true           # also write to a dataset that was indexed from another pattern
//! # break_lock = true           # take over a lock whose holder cannot be checked from this host
//! # files_per_epoch = 16        # number of closed files that completes an epoch; default: one per rank
//! # drop = ["w"]
//! # stall_s = 60                # seconds to wait for a missing rank before giving up; default 300
//! # index = ["hash:id,with=energy", "uy"]  # columns to index while the records are written, and columns to carry;
//! #                               # "bitmap:ux,uy,uz" answers conditions on several columns
//! # levels = 3                  # levels of detail of a new dataset with a key by space
//! # level_weight = "energy"     # the column to which they are in proportion; default: levels are even
//! # period = "128,,64"          # periods of the coordinates, with a key by space; nothing where it is not periodic
//! # receivers = 64              # ranks that store each epoch; default: by its volume
//! # memtable_bytes = 7340032    # size of a receiver's memtable
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
//! With `format = "vpic"` the files are VPIC's particle dumps: their headers are checked. The fields and the constants
//! `header.step` to `header.q_m` are built in. The settings header_bytes, record_bytes, records, magic, field and
//! constant are errors.
//!
//! With `format = "lammps"` the files are LAMMPS' binary dumps, which state the lengths of their headers and the names
//! of their columns. Each field names a column of the file, in any order; its `type` is the type stored. The constants
//! `header.xlo` to `header.zhi`, `header.xy`, `header.xz` and `header.yz` are the simulation box's bounds and tilt
//! factors. Without `{epoch}`, `files` matches dumps of several steps. Each step becomes an epoch and is indexed while
//! the dump is still being written.
//!
//! With `{id}` in its pattern, as in `rdb_{id}.dat`, each file of a dataset holds one record. The number in the file's
//! name is stored as the column `id`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use turbidite::expr::DerivationSet;
use turbidite::{Column, DataType, IfExists, Levels, Periods, Schema, SecondaryIndex};
use turbidite_source::checks::{Checks, Texts};
use turbidite_source::{DumpFormat, Existing, Field, FieldLayout, PathPattern, lammps, vpic};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    dataset: Vec<DatasetEntry>,
    #[serde(default)]
    quiet: bool,
}

/// A valid configuration.
#[derive(Debug)]
pub(crate) struct Configuration {
    pub(crate) plans: Vec<DatasetPlan>,
    /// Whether to print nothing on success.
    pub(crate) quiet: bool,
}

/// A dataset entry, as deserialised from the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DatasetEntry {
    files: String,
    out: PathBuf,
    key: String,
    #[serde(default)]
    derive: Vec<String>,
    #[serde(default)]
    drop: Vec<String>,
    #[serde(default)]
    index: Vec<String>,
    #[serde(default)]
    format: DumpFormat,
    header_bytes: Option<usize>,
    record_bytes: Option<usize>,
    records: Option<String>,
    magic: Option<Texts>,
    #[serde(default)]
    mode: Mode,
    spool: Option<PathBuf>,
    #[serde(default)]
    if_exists: Existing,
    truncate_after: Option<u64>,
    #[serde(default)]
    any_source: bool,
    #[serde(default)]
    break_lock: bool,
    files_per_epoch: Option<u64>,
    #[serde(default)]
    levels: Option<LevelCount>,
    level_weight: Option<String>,
    period: Option<String>,
    receivers: Option<u32>,
    memtable_bytes: Option<usize>,
    stall_s: Option<u64>,
    #[serde(rename = "field", default)]
    fields: Vec<FieldLayout>,
    #[serde(rename = "constant", default)]
    constants: Vec<FieldLayout>,
}

/// A number of levels of detail.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(
    untagged,
    expecting = "levels must be a number from 1 to 6, since sizes are not known before the program writes"
)]
enum LevelCount {
    Stated(u8),
}

/// The handling of the program's own files.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// The files stay at their original paths.
    #[default]
    Keep,
    /// The files are written to the spool, and removed once their epoch is indexed.
    Replace,
}

/// One dataset and its source files.
#[derive(Debug)]
pub(crate) struct DatasetPlan {
    /// The path of the configuration file.
    pub(crate) config: PathBuf,
    pub(crate) pattern: PathPattern,
    pub(crate) out: PathBuf,
    pub(crate) schema: Schema,
    pub(crate) format: DumpFormat,
    pub(crate) header_bytes: usize,
    pub(crate) record_bytes: usize,
    /// The checks of each file's header, with [`DumpFormat::Records`].
    pub(crate) checks: Checks,
    pub(crate) fields: Vec<Field>,
    pub(crate) constants: Vec<Field>,
    pub(crate) derivations: DerivationSet,
    pub(crate) derivation_texts: Vec<String>,
    /// The stored columns, as indexes into the fields followed by the derived columns.
    pub(crate) stored: Vec<usize>,
    pub(crate) mode: Mode,
    pub(crate) spool: PathBuf,
    pub(crate) if_exists: IfExists,
    pub(crate) truncate_after: Option<u64>,
    /// Whether to append to a dataset that was indexed from another pattern.
    pub(crate) any_source: bool,
    pub(crate) break_lock: bool,
    pub(crate) files_per_epoch: Option<u64>,
    /// Number of levels of detail of a new dataset. 0 for none, and for those of an existing one.
    pub(crate) levels: u8,
    /// The column to which the levels are in proportion.
    pub(crate) level_weight: Option<String>,
    pub(crate) receivers: Option<u32>,
    /// Columns that are indexed while records are written.
    pub(crate) indexes: Vec<SecondaryIndex>,
    pub(crate) memtable_bytes: Option<usize>,
    pub(crate) stall_limit: Option<Duration>,
}

impl DatasetPlan {
    /// Returns whether files of any other format, or with parts missing, would be indexed.
    pub(crate) fn lacks_checks(&self) -> bool {
        self.format == DumpFormat::Records && self.checks.header_bytes() == 0
    }
}

/// Name of the column that stores the value of `{id}`.
const ID: &str = "id";

/// Reads a configuration.
///
/// # Errors
/// Returns one message per mistake, each on one line.
pub(crate) fn read(path: &Path) -> Result<Configuration, Vec<String>> {
    let at = |what: String| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| vec![at(error.to_string())])?;
    let document: Document = toml::from_str(&text).map_err(|error| vec![at(in_one_line(&text, &error))])?;
    let config = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (mut plans, mut mistakes): (Vec<DatasetPlan>, Vec<String>) = (Vec::new(), Vec::new());
    for (index, written) in document.dataset.into_iter().enumerate() {
        let name = format!("[[dataset]] {} (out = \"{}\")", index + 1, written.out.display());
        let plan = plan(written, &config).and_then(|plan| refuse_twice(&plans, plan));
        match plan {
            Ok(plan) => plans.push(plan),
            Err(what) => mistakes.push(at(format!("{name}: {what}"))),
        }
    }
    if mistakes.is_empty() { Ok(Configuration { plans, quiet: document.quiet }) } else { Err(mistakes) }
}

/// Returns the message and the line number of a TOML error.
fn in_one_line(text: &str, error: &toml::de::Error) -> String {
    let line =
        error.span().map(|span| text.as_bytes()[..span.start.min(text.len())].split(|&byte| byte == b'\n').count());
    let message = error.message().replace('\n', " ");
    line.map_or_else(|| message.clone(), |line| format!("line {line}: {message}"))
}

/// Returns the plan, or an error if an earlier plan has the same output folder: records of both would be mixed.
fn refuse_twice(plans: &[DatasetPlan], plan: DatasetPlan) -> Result<DatasetPlan, String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    match plans.iter().position(|other| real(&other.out) == real(&plan.out)) {
        None => Ok(plan),
        Some(other) => Err(format!("[[dataset]] {} has the same out; each dataset needs its own folder", other + 1)),
    }
}

fn fields(written: Vec<FieldLayout>, follow: bool) -> Result<Vec<Field>, String> {
    let mut fields: Vec<Field> = Vec::new();
    let mut end = 0;
    for FieldLayout { name, data_type, unit, offset } in written {
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

impl DatasetEntry {
    /// Returns the names of the given settings that describe records. Only [`DumpFormat::Records`] accepts these
    /// settings.
    fn descriptions(&self) -> Vec<&'static str> {
        let settings = [
            ("header_bytes", self.header_bytes.is_some()),
            ("record_bytes", self.record_bytes.is_some()),
            ("records", self.records.is_some()),
            ("magic", self.magic.is_some()),
            ("[[dataset.constant]]", !self.constants.is_empty()),
        ];
        settings.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
    }
}

/// Checks that the other settings of a dataset are valid for its format.
fn check_format(written: &DatasetEntry, pattern: &PathPattern) -> Result<(), String> {
    let unnamed = || Err(format!("'{}' has no {{epoch}}", written.files));
    match written.format {
        DumpFormat::Records if !pattern.names_epochs() => unnamed(),
        DumpFormat::Records if written.fields.is_empty() => {
            Err("[[dataset.field]] is missing: records need at least one, unless format names a known format"
                .to_owned())
        }
        DumpFormat::Records => Ok(()),
        DumpFormat::Vpic if !pattern.names_epochs() => unnamed(),
        DumpFormat::Vpic => check_vpic(written, pattern),
        DumpFormat::Lammps => check_lammps(written, pattern),
    }
}

fn check_vpic(written: &DatasetEntry, pattern: &PathPattern) -> Result<(), String> {
    let mut given = written.descriptions();
    if !written.fields.is_empty() {
        given.push("[[dataset.field]]");
    }
    if !given.is_empty() {
        return Err(format!(
            "format = \"vpic\" defines header, fields and constants of the files: omit {}, or omit format",
            given.join(", ")
        ));
    }
    if pattern.names_records() {
        return Err(format!("'{}' has an {{id}}, but VPIC's files hold many records", written.files));
    }
    Ok(())
}

fn check_lammps(written: &DatasetEntry, pattern: &PathPattern) -> Result<(), String> {
    let given = written.descriptions();
    if !given.is_empty() || written.fields.iter().any(|field| field.offset.is_some()) {
        return Err(
            "LAMMPS' files state the lengths of headers and records: omit header_bytes, record_bytes, offsets, \
             constants, records and magic"
                .to_owned(),
        );
    }
    if pattern.names_records() {
        return Err(format!("'{}' has an {{id}}, but LAMMPS' files hold many records", written.files));
    }
    if !pattern.names_epochs() && written.mode == Mode::Replace {
        return Err(format!(
            "'{}' has no {{epoch}}: a file of several steps cannot be replaced step by step; set mode = \"keep\", or \
             write one file per step",
            written.files
        ));
    }
    Ok(())
}

/// Returns the constants in the headers of a dataset's files.
fn constants(written: Vec<FieldLayout>, format: DumpFormat) -> Result<Vec<Field>, String> {
    let constant =
        |(index, name): (usize, &&str)| Field { column: Column::new(*name, DataType::F64), offset: 8 * index };
    match format {
        DumpFormat::Records => fields(written, false),
        DumpFormat::Vpic => Ok(vpic::constants()),
        DumpFormat::Lammps => Ok(lammps::BOX.iter().enumerate().map(constant).collect()),
    }
}

fn plan(written: DatasetEntry, config: &Path) -> Result<DatasetPlan, String> {
    let pattern = PathPattern::parse(&written.files)?;
    check_format(&written, &pattern)?;
    let (header_bytes, mut fields) = match written.format {
        DumpFormat::Vpic => (vpic::HEADER_BYTES, vpic::particle_fields()),
        _ => (written.header_bytes.unwrap_or(0), fields(written.fields, true)?),
    };
    if written.format == DumpFormat::Lammps
        && let Some(opaque) = fields.iter().find(|field| matches!(field.column.data_type, DataType::FixedBytes(_)))
    {
        return Err(format!("'{}' must have a number type, like all of LAMMPS' columns", opaque.column.name));
    }
    let record_bytes = written.record_bytes.unwrap_or_else(|| end(&fields));
    if record_bytes == 0 || end(&fields) > record_bytes {
        return Err(format!("a field ends beyond the record of {record_bytes} bytes"));
    }
    let constants = self::constants(written.constants, written.format)?;
    if written.format == DumpFormat::Records && end(&constants) > header_bytes {
        return Err(format!("a constant ends beyond the header of {header_bytes} bytes"));
    }
    let checks = Checks::parse(written.records.as_deref(), written.magic.as_ref(), header_bytes as u64)?;
    let mut total_bytes = record_bytes;
    if pattern.names_records() {
        // The number in the file's name is appended to each record as eight bytes.
        fields.push(Field { column: Column::new(ID, DataType::U64), offset: record_bytes });
        total_bytes += 8;
    }
    let columns: Vec<Column> = fields.iter().map(|field| field.column.clone()).collect();
    let known = |name: &str| position(&constants, name).map(|_| 0.0);
    let derivations = DerivationSet::parse(&written.derive, &columns, &known).map_err(|error| error.to_string())?;
    let all: Vec<Column> = columns.into_iter().chain(derivations.columns().cloned()).collect();
    if let Some(unknown) = written.drop.iter().find(|name| all.iter().all(|column| column.name != **name)) {
        return Err(format!("drop: there is no column '{unknown}'"));
    }
    let stored: Vec<usize> = (0..all.len()).filter(|&index| !written.drop.contains(&all[index].name)).collect();
    let kept = stored.iter().map(|&index| all[index].clone()).collect();
    let schema = Schema::new(kept, &written.key).map_err(|error| error.to_string())?;
    let schema = match &written.period {
        Some(text) => {
            let periodic = text.parse().and_then(|periods: Periods| schema.with_periods(periods));
            periodic.map_err(|error| format!("period: {error}"))?
        }
        None => schema,
    };
    let LevelCount::Stated(levels) = written.levels.unwrap_or(LevelCount::Stated(0));
    if levels > 0 {
        // Rank 0 chooses the seed.
        let levels = Levels { count: levels, seed: 0 };
        let schema = schema.clone().with_levels(levels).map_err(|error| error.to_string())?;
        if let Some(weight) = &written.level_weight {
            schema.with_level_weight(weight).map_err(|error| error.to_string())?;
        }
    } else if written.level_weight.is_some() {
        return Err("level_weight: state the number of levels, too, as levels = 3".to_owned());
    }
    let indexes = indexes(&written.index, &schema)?;
    let absolute = |path: PathBuf| std::path::absolute(&path).map_err(|error| format!("{}: {error}", path.display()));
    Ok(DatasetPlan {
        config: config.to_owned(),
        pattern,
        out: absolute(written.out)?,
        schema,
        format: written.format,
        header_bytes,
        record_bytes: total_bytes,
        checks,
        fields,
        constants,
        derivations,
        derivation_texts: written.derive,
        stored,
        mode: written.mode,
        spool: written.spool.unwrap_or_else(|| PathBuf::from("/dev/shm")),
        if_exists: written.if_exists.into(),
        truncate_after: written.truncate_after,
        any_source: written.any_source,
        break_lock: written.break_lock,
        files_per_epoch: written.files_per_epoch,
        levels,
        level_weight: written.level_weight,
        receivers: written.receivers,
        indexes,
        memtable_bytes: written.memtable_bytes,
        stall_limit: written.stall_s.map(Duration::from_secs),
    })
}

/// Returns the index of a constant such as `header.x0`.
fn position(constants: &[Field], name: &str) -> Option<usize> {
    constants.iter().position(|field| field.column.name.eq_ignore_ascii_case(name))
}

impl DatasetPlan {
    /// Returns the index of a constant in [`DatasetPlan::constants`].
    pub(crate) fn constant(&self, name: &str) -> Option<usize> {
        position(&self.constants, name)
    }

    /// Returns the spool folder, if files are spooled.
    pub(crate) fn spool_root(&self) -> Option<&Path> {
        (self.mode == Mode::Replace).then_some(self.spool.as_path())
    }

    /// Returns all settings that must be the same on every rank, as text.
    pub(crate) fn summary(&self) -> String {
        format!(
            "{:?}",
            (
                (&self.pattern, &self.out, &self.schema, &self.derivation_texts, self.format, &self.checks),
                (self.header_bytes, self.record_bytes, &self.fields, &self.constants, &self.stored),
                (self.if_exists, self.truncate_after, self.any_source, self.break_lock),
                (self.files_per_epoch, self.receivers, self.memtable_bytes, &self.indexes),
                (self.levels, &self.level_weight),
            )
        )
    }

    /// Returns the size of a record in its file, without the appended `{id}` column.
    pub(crate) fn file_record_bytes(&self) -> usize {
        if self.pattern.names_records() { self.record_bytes - 8 } else { self.record_bytes }
    }
}

/// Returns the indexes to make of records with the columns of `schema`.
fn indexes(written: &[String], schema: &Schema) -> Result<Vec<SecondaryIndex>, String> {
    let parse = |text: &String| -> Result<SecondaryIndex, turbidite::Error> {
        let definition: SecondaryIndex = text.parse()?;
        definition.check_in_situ()?;
        definition.check(schema)?;
        Ok(definition)
    };
    written.iter().map(|text| parse(text).map_err(|error| format!("index: {error}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VPIC: &str = "[[dataset]]\nfiles = 'T.{epoch}/e.{epoch}.{rank}'\nout = 'ds'\nformat = 'vpic'\n";
    const RAW: &str = "[[dataset]]\nfiles = 'T.{epoch}/e.{epoch}.{rank}'\nout = 'ds'\nkey = 'a'\nheader_bytes = 8\n";
    const FIELD: &str = "[[dataset.field]]\nname = 'a'\ntype = 'f32'\n";

    fn read_text(text: &str) -> Result<DatasetPlan, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path()).map(|mut found| found.plans.remove(0)).map_err(|mistakes| mistakes.concat())
    }

    #[test]
    fn vpic_needs_no_more_than_its_name() {
        let plan = read_text(&format!("{VPIC}key = 'x'\nderive = ['x=header.x0+dx*header.dx']\ndrop = ['w', 'dx']\n"));
        let plan = plan.unwrap();
        assert_eq!((plan.header_bytes, plan.record_bytes, plan.file_record_bytes()), (115, 32, 32));
        let names: Vec<&str> = plan.schema.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["dy", "dz", "i", "ux", "uy", "uz", "x"]);
        assert_eq!(plan.constants.len(), 18);
        assert!(end(&plan.constants) <= plan.header_bytes && end(&plan.fields) == plan.record_bytes);
        assert_ne!(plan.summary(), read_text(&format!("{VPIC}key = 'ux'\n")).unwrap().summary());
    }

    #[test]
    fn what_vpic_knows_is_not_given() {
        let constant = "[[dataset.constant]]\nname = 'header.x0'\ntype = 'f32'\noffset = 63\n";
        for (given, setting) in [
            ("header_bytes = 115", "omit header_bytes"),
            ("header_bytes = 0", "omit header_bytes"),
            ("record_bytes = 32\nmagic = '08@0'", "omit record_bytes, magic"),
            ("records = 'i32@111'", "omit records"),
            (constant, "omit [[dataset.constant]]"),
            (FIELD, "omit [[dataset.field]], or omit format"),
        ] {
            let said = read_text(&format!("{VPIC}key = 'ux'\n{given}")).unwrap_err();
            assert!(said.contains("format = \"vpic\" defines") && said.contains(setting), "{said}");
        }
        for (files, what) in [("e.{rank}", "has no {epoch}"), ("T.{epoch}/{id}", "has an {id}")] {
            let said = read_text(&format!("{}key = 'ux'\n", VPIC.replace("T.{epoch}/e.{epoch}.{rank}", files)));
            assert!(said.as_ref().unwrap_err().contains(what), "{said:?}");
        }
    }

    #[test]
    fn headers_of_raw_records_can_be_described() {
        let with = |settings: &str| read_text(&format!("{RAW}{settings}\n{FIELD}"));
        let checks = |settings: &str| with(settings).unwrap().checks;
        assert_eq!(checks(""), Checks::default());
        assert_eq!(checks("magic = 'fe ca@0'"), checks("magic = ['fe ca@0']"));
        assert_ne!(with("records = 'u32@4'").unwrap().summary(), with("").unwrap().summary());
        for (settings, what) in [
            ("records = 'u32@5'", "records = \"u32@5\" ends beyond the header of 8 bytes"),
            ("levels = 'auto'", "levels must be a number from 1 to 6"),
            ("levels = 2", "whose key is by space"),
            ("level_weight = 'ux'", "state the number of levels, too"),
            ("period = '8'", "period: the periods '8' are not possible: the key is 'a', and only a key by space"),
            ("period = 8", "invalid type: integer `8`"),
            ("records = 4", "invalid type: integer `4`"),
            ("magic = [['00@0']]", "expected a text such as"),
            ("magic = 'x@0'", "is not BYTES@OFFSET"),
            ("format = 'lammps'\nmagic = '00@0'", "constants, records and magic"),
        ] {
            let said = with(settings).unwrap_err();
            assert!(said.contains(what), "{said}");
        }
        assert!(read_text(RAW).unwrap_err().contains("[[dataset.field]] is missing"));
    }
}
