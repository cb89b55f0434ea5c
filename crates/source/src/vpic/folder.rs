//! Opens the dumps in the folders that VPIC writes: `T.<step>/<species>.<step>.<rank>`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use turbidite::Column;

use super::header::{CONSTANTS, ELEMENT_BYTES, HEADER_BYTES, Header, PARTICLES, RANK, STEP};
use super::particle::{PARTICLE_BYTES, particle_fields};
use crate::epochs::EpochChoice;
use crate::error::{SourceContext, SourceError};
use crate::field::Field;
use crate::files::{file_bytes, names};
use crate::inventory::{FilesByRank, Form, RecordFile, RecordForm, Source};
use crate::options::SourceOptions;
use crate::ranks::{Expected, RankCheck};

/// A file named like a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Named {
    species: String,
    step: u64,
    rank: u32,
}

/// The content of the folders, according to file names only.
#[derive(Debug, Default)]
struct Listing {
    /// Paths of the files by species, step and rank.
    dumps: BTreeMap<String, FilesByRank>,
    steps: BTreeSet<u64>,
    others: Vec<PathBuf>,
}

/// Opens the dumps below `root`.
pub(crate) fn open(root: &Path, options: &SourceOptions) -> Result<Source, SourceError> {
    options.check_nulls(None)?;
    let mut listing = list(root)?;
    let species = choose_species(root, &listing, options.species.as_deref())?;
    let steps = listing.dumps.remove(&species).unwrap_or_default();
    let notes = notes(root, &listing, &species, &steps);
    open_steps(root, &steps, &sibling, notes, options)
}

/// Returns the path of another rank's dump of the step of `example`.
fn sibling(example: &Path, _step: u64, rank: u32) -> PathBuf {
    let name = example.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    example.with_file_name(format!("{stem}.{rank}"))
}

/// Opens dumps that were found below `root`. `sibling` returns the path of another rank's dump of a step.
pub(crate) fn open_steps(
    root: &Path,
    steps: &FilesByRank,
    sibling: &dyn Fn(&Path, u64, u32) -> PathBuf,
    mut notes: Vec<String>,
    options: &SourceOptions,
) -> Result<Source, SourceError> {
    let mut epochs = BTreeMap::new();
    let mut first: Option<(PathBuf, i32)> = None;
    let mut rank_check = RankCheck::new(options);
    let mut choice = EpochChoice::among(root, steps.keys().copied(), options)?;
    for (&step, dumps) in steps.iter().filter(|(step, _)| options.selects(**step)) {
        let checked = check_step(step, dumps, sibling, &mut rank_check);
        let Some((files, element_bytes)) = choice.judge(step, checked)? else { continue };
        if !choice.is_whole(step, !options.allow_missing_ranks, "--allow-missing-ranks allows any number of files") {
            continue;
        }
        if let Some(path) = dumps.values().next() {
            let (known_path, known) = first.get_or_insert_with(|| (path.clone(), element_bytes));
            if *known != element_bytes {
                return Err(SourceError::Field {
                    path: path.clone(),
                    field: "the element size",
                    offset: ELEMENT_BYTES as u64,
                    found: element_bytes.to_string(),
                    expected: format!("{known} as in {}", known_path.display()),
                });
            }
        }
        epochs.insert(step, files);
    }
    let element_bytes = first.as_ref().map_or(PARTICLE_BYTES, |(_, bytes)| *bytes as usize);
    let fields = fields(first.as_ref().map_or(root, |(path, _)| path), element_bytes, &options.extra)?;
    notes.extend(rank_check.note());
    let constants = CONSTANTS.iter().map(|name| (*name).to_owned()).collect();
    let form = RecordForm { fields, filler: None, header_bytes: HEADER_BYTES as u64, constants };
    let EpochChoice { labels, left_out, .. } = choice;
    Ok(Source { epochs, form: Form::Records(form), record_bytes: element_bytes, notes, labels, left_out })
}

/// Parses a number as VPIC prints it: digits without leading zeros.
fn plain<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

/// Splits `<species>.<step>.<rank>`.
fn parse_name(name: &str) -> Option<Named> {
    let mut parts = name.rsplitn(3, '.');
    let (rank, step, species) = (parts.next()?, parts.next()?, parts.next()?);
    (!species.is_empty()).then_some(())?;
    Some(Named { species: species.to_owned(), step: plain(step)?, rank: plain(rank)? })
}

/// Collects the names of all dumps.
fn list(root: &Path) -> Result<Listing, SourceError> {
    let mut listing = Listing::default();
    let step_of = |name: &str| name.strip_prefix("T.").and_then(plain::<u64>);
    for folder_name in names(root)? {
        let Some(step) = step_of(&folder_name) else { continue };
        let folder = root.join(&folder_name);
        if !folder.is_dir() {
            continue;
        }
        listing.steps.insert(step);
        for name in names(&folder)? {
            let path = folder.join(&name);
            let Some(named) = parse_name(&name) else {
                listing.others.push(path);
                continue;
            };
            if named.step != step {
                let what = format!("a dump of step {} in the folder of step {step}", named.step);
                return Err(SourceError::Unfit { path, what });
            }
            listing.dumps.entry(named.species).or_default().entry(step).or_default().insert(named.rank, path);
        }
    }
    if listing.steps.is_empty() {
        return Err(SourceError::Unfit { path: root.to_owned(), what: nothing_found(root) });
    }
    Ok(listing)
}

/// Returns the message for a folder without `T.<step>` folders.
fn nothing_found(root: &Path) -> String {
    let is_step = |name: &str| name.strip_prefix("T.").and_then(plain::<u64>).is_some();
    let base = "no folders called T.<step> in it";
    if root.file_name().and_then(|name| name.to_str()).is_some_and(is_step) {
        return format!("{base}; this is the folder of one step: give its parent");
    }
    let children = names(root).unwrap_or_default();
    let below =
        children.iter().find(|child| names(&root.join(child)).unwrap_or_default().iter().any(|name| is_step(name)));
    match below {
        Some(child) => format!("{base}, but in {}: give that folder", root.join(child).display()),
        None => format!("{base}; describe other files, raw records or Parquet, with --layout"),
    }
}

/// Returns the species to read.
fn choose_species(root: &Path, listing: &Listing, wanted: Option<&str>) -> Result<String, SourceError> {
    let known: Vec<&String> = listing.dumps.keys().collect();
    let joined = |names: &[&String]| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
    if let Some(wanted) = wanted {
        return known.iter().find(|name| name.as_str() == wanted).map(|name| (*name).clone()).ok_or_else(|| {
            SourceError::Usage(format!("{} has no dumps of '{wanted}'; it has {}", root.display(), joined(&known)))
        });
    }
    let first_file = |name: &String| listing.dumps[name].values().flat_map(BTreeMap::values).next();
    let is_dump = |name: &&String| first_file(name).is_some_and(|path| starts_as_particle_dump(path));
    let particles: Vec<&String> = known.iter().copied().filter(is_dump).collect();
    match (particles.as_slice(), known.as_slice()) {
        ([one], _) | ([], [one]) => Ok((*one).clone()),
        ([], []) => Err(SourceError::Unfit {
            path: root.to_owned(),
            what: "the folders T.<step> have no files called <species>.<step>.<rank>".into(),
        }),
        ([], names) => Err(SourceError::Unfit {
            path: root.to_owned(),
            what: format!("none of {} are VPIC particle dumps; describe other records with --layout", joined(names)),
        }),
        (several, _) => Err(SourceError::Usage(format!(
            "{} has dumps of several species; choose one with --species: {}",
            root.display(),
            joined(several)
        ))),
    }
}

/// Returns whether a file begins like a particle dump. Errors of unreadable files are reported later.
fn starts_as_particle_dump(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEADER_BYTES as u64).read_to_end(&mut bytes));
    read.is_ok() && Header::begins_particle_dump(&bytes)
}

/// Returns notes on ignored files.
fn notes(root: &Path, listing: &Listing, species: &str, steps: &FilesByRank) -> Vec<String> {
    let mut notes = Vec::new();
    let mut left_out: Vec<&PathBuf> = listing.others.iter().collect();
    left_out.extend(listing.dumps.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values));
    if let Some(example) = left_out.first() {
        let example = example.strip_prefix(root).unwrap_or(example).display();
        notes.push(format!("ignored {} files that are not dumps of {species}, such as {example}", left_out.len()));
    }
    let without: Vec<String> =
        listing.steps.iter().filter(|step| !steps.contains_key(step)).map(|step| format!("T.{step}")).collect();
    if !without.is_empty() {
        notes.push(format!("no dumps of {species} in {}", without.join(", ")));
    }
    notes
}

/// Reads and checks the headers of all ranks of a step.
fn check_step(
    step: u64,
    dumps: &BTreeMap<u32, PathBuf>,
    sibling: &dyn Fn(&Path, u64, u32) -> PathBuf,
    rank_check: &mut RankCheck<'_>,
) -> Result<(Vec<RecordFile>, i32), SourceError> {
    let mut files = Vec::with_capacity(dumps.len());
    let mut first: Option<(&Path, Header)> = None;
    for (&rank, path) in dumps {
        let header = read_header(path)?;
        let unlike_name = |field, offset: usize, found: i32, expected: u64| SourceError::Field {
            path: path.clone(),
            field,
            offset: offset as u64,
            found: found.to_string(),
            expected: format!("{expected} as in the name"),
        };
        // `Header::parse` has checked that both numbers are not negative.
        if header.step as u64 != step {
            return Err(unlike_name("the step", STEP, header.step, step));
        }
        if header.rank as u32 != rank {
            return Err(unlike_name("the rank", RANK, header.rank, u64::from(rank)));
        }
        if let Some((first_path, first)) = &first {
            header.agrees_with(path, first, first_path)?;
        }
        files.push(RecordFile {
            path: path.clone(),
            rank,
            records: header.particles as u64,
            constants: header.constants(),
            row_groups: Box::default(),
        });
        first.get_or_insert((path, header));
    }
    let Some((first_path, header)) = first else { return Ok((files, PARTICLE_BYTES as i32)) };
    let expected = rank_check.stated().unwrap_or_else(|| Expected {
        ranks: header.ranks as u64,
        origin: format!("that {} states", first_path.display()),
    });
    rank_check.check(step, dumps, &expected, |rank| sibling(first_path, step, rank))?;
    Ok((files, header.element_bytes))
}

/// Reads a header and checks the file's length against it.
fn read_header(path: &Path) -> Result<Header, SourceError> {
    let length = file_bytes(path)?;
    if length < HEADER_BYTES as u64 {
        let expected = format!("at least the {HEADER_BYTES} of a VPIC header");
        return Err(SourceError::Length { path: path.to_owned(), found: length, expected });
    }
    let mut bytes = [0; HEADER_BYTES];
    File::open(path).of("open", path)?.read_exact(&mut bytes).of("read", path)?;
    let header = Header::parse(path, &bytes)?;
    if header.file_bytes() != length {
        let (particles, element_bytes) = (header.particles, header.element_bytes);
        return Err(SourceError::Length {
            path: path.to_owned(),
            found: length,
            expected: format!(
                "{}, {HEADER_BYTES} for the header and {element_bytes} for each of the {particles} particles that it \
                 states at offset {PARTICLES}",
                header.file_bytes()
            ),
        });
    }
    Ok(header)
}

/// Returns VPIC's own fields, then the declared fields.
fn fields(path: &Path, element_bytes: usize, extra: &[Column]) -> Result<Vec<Field>, SourceError> {
    let mut fields = particle_fields();
    let mut offset = PARTICLE_BYTES;
    for column in extra {
        let width = column.data_type.width();
        fields.push(Field { column: column.clone(), offset });
        offset += width;
    }
    if offset != element_bytes {
        let (more, declared) = (element_bytes - PARTICLE_BYTES, offset - PARTICLE_BYTES);
        let advice = match more {
            0 => "omit --extra".to_owned(),
            _ if more.is_multiple_of(8) => {
                let tags: Vec<String> = (0..more / 8).map(|tag| format!("tag{tag}:i64")).collect();
                format!("declare them with --extra, for example --extra '{}'", tags.join(","))
            }
            _ => format!("declare them with --extra, for example --extra 'rest:fixed_bytes({more})'"),
        };
        // The data is valid, but an option is missing or wrong.
        return Err(SourceError::Usage(format!(
            "{}: an element has {element_bytes} bytes (offset {ELEMENT_BYTES}), {more} more than VPIC's own {PARTICLE_BYTES}, but \
             the columns declared for them have {declared}; {advice}",
            path.display()
        )));
    }
    Ok(fields)
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::sample;
    use super::*;
    use crate::options::parse_columns;

    /// Writes a dump of `particles` zero records.
    fn dump(root: &Path, species: &str, step: i32, rank: i32, ranks: i32, element_bytes: i32) -> PathBuf {
        let folder = root.join(format!("T.{step}"));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{species}.{step}.{rank}"));
        let mut bytes = sample(step, rank, ranks, element_bytes, 3 + rank);
        bytes.resize(bytes.len() + ((3 + rank) * element_bytes) as usize, 0);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn refused(root: &Path, options: &SourceOptions) -> String {
        Source::open(root, options).unwrap_err().to_string()
    }

    #[test]
    fn names_are_split_from_the_right() {
        let named = |species: &str, step, rank| Some(Named { species: species.into(), step, rank });
        assert_eq!(parse_name("eparticle.500.0"), named("eparticle", 500, 0));
        assert_eq!(parse_name("e.beam.500.12"), named("e.beam", 500, 12));
        for name in ["eparticle.500", ".500.0", "eparticle.0500.0", "eparticle.500.0.gz", "eparticle.500.-1"] {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }

    #[test]
    fn epochs_ranks_and_columns_are_found() {
        let root = tempfile::tempdir().unwrap();
        for (step, rank) in [(1000, 1), (500, 0), (1000, 0), (500, 1)] {
            dump(root.path(), "electron", step, rank, 2, 32);
        }
        let source = Source::open(root.path(), &SourceOptions::default()).unwrap();
        assert_eq!(source.epochs().collect::<Vec<_>>(), [500, 1000]);
        assert_eq!((source.ranks(), source.records(500), source.record_bytes()), (2, 7, 32));
        let columns: Vec<String> = source.columns().into_iter().map(|column| column.name).collect();
        assert_eq!(columns, ["dx", "dy", "dz", "i", "ux", "uy", "uz", "w"]);
        let x0 = source.constant("header.x0").unwrap();
        assert_eq!(source.files(1000)[1].constants[x0], 64.0);
        assert!(source.notes().is_empty());
    }

    #[test]
    fn several_species_must_be_told_apart() {
        let root = tempfile::tempdir().unwrap();
        dump(root.path(), "electron", 500, 0, 1, 32);
        dump(root.path(), "ion", 500, 0, 1, 32);
        dump(root.path(), "ion", 600, 0, 1, 32);
        std::fs::write(root.path().join("T.500/fields.500.0"), b"something else").unwrap();
        let message = refused(root.path(), &SourceOptions::default());
        assert!(message.contains("--species: electron, ion"), "{message}");
        let wanted = |name: &str| SourceOptions { species: Some(name.into()), ..Default::default() };
        let source = Source::open(root.path(), &wanted("electron")).unwrap();
        assert_eq!(source.epochs().collect::<Vec<_>>(), [500]);
        assert_eq!(source.notes().len(), 2, "{:?}", source.notes());
        assert!(refused(root.path(), &wanted("positron")).contains("it has electron, fields, ion"));
        let message = refused(root.path(), &wanted("fields"));
        assert!(message.contains("fields.500.0: the file has 14 bytes"), "{message}");
    }

    #[test]
    fn one_species_beside_other_dumps_needs_no_choice() {
        let root = tempfile::tempdir().unwrap();
        dump(root.path(), "electron", 500, 0, 1, 32);
        let mut other = sample(500, 0, 1, 32, 0);
        other[27] = 1;
        std::fs::write(root.path().join("T.500/fields.500.0"), other).unwrap();
        let source = Source::open(root.path(), &SourceOptions::default()).unwrap();
        assert_eq!(source.records(500), 3);
        assert!(source.notes()[0].contains("T.500/fields.500.0"), "{:?}", source.notes());
    }

    #[test]
    fn missing_truncated_and_misplaced_files_are_named() {
        let options = SourceOptions::default();
        let root = tempfile::tempdir().unwrap();
        let paths: Vec<PathBuf> = (0..3).map(|rank| dump(root.path(), "e", 500, rank, 3, 32)).collect();
        let whole = std::fs::read(&paths[2]).unwrap();

        std::fs::write(&paths[2], &whole[..whole.len() - 1]).unwrap();
        let message = refused(root.path(), &options);
        assert!(message.contains("T.500/e.500.2: the file has 274 bytes, expected 275"), "{message}");
        std::fs::write(&paths[2], &whole[..100]).unwrap();
        assert!(refused(root.path(), &options).contains("at least the 115 of a VPIC header"));
        std::fs::remove_file(&paths[2]).unwrap();
        let message = refused(root.path(), &options);
        assert!(message.contains("T.500/e.500.2 is missing") && message.contains("3 ranks"), "{message}");

        std::fs::copy(&paths[1], &paths[2]).unwrap();
        let message = refused(root.path(), &options);
        assert!(message.contains("e.500.2: the rank at offset 87 is 1, expected 2 as in the name"), "{message}");

        let other = dump(root.path(), "e", 600, 0, 1, 32);
        std::fs::write(&paths[2], &whole).unwrap();
        std::fs::copy(&paths[0], &other).unwrap();
        let message = refused(root.path(), &options);
        assert!(message.contains("e.600.0: the step at offset 31 is 500, expected 600 as in the name"), "{message}");
        std::fs::rename(&other, root.path().join("T.600/e.500.0")).unwrap();
        assert!(refused(root.path(), &options).contains("a dump of step 500 in the folder of step 600"));
    }

    #[test]
    fn wrong_folders_get_advice() {
        let root = tempfile::tempdir().unwrap();
        let options = SourceOptions::default();
        assert!(refused(root.path(), &options).contains("--layout"));
        dump(&root.path().join("particle"), "e", 500, 0, 1, 32);
        assert!(refused(root.path(), &options).contains("particle: give that folder"));
        assert!(refused(&root.path().join("particle/T.500"), &options).contains("give its parent"));
        assert!(refused(&root.path().join("nowhere"), &options).starts_with("cannot read "));
        std::fs::write(root.path().join("file"), b"").unwrap();
        assert!(refused(&root.path().join("file"), &options).contains("neither a folder"));
    }

    #[test]
    fn longer_elements_need_declared_columns() {
        let root = tempfile::tempdir().unwrap();
        let extra = |text: &str| SourceOptions { extra: parse_columns(text).unwrap(), ..Default::default() };
        dump(root.path(), "e", 500, 0, 1, 48);
        let message = refused(root.path(), &SourceOptions::default());
        assert!(message.contains("--extra 'tag0:i64,tag1:i64'"), "{message}");
        assert!(refused(root.path(), &extra("tag0:i64")).contains("16 more"));
        let source = Source::open(root.path(), &extra("tag0:i64,tag1:i64")).unwrap();
        let Form::Records(form) = &source.form else { panic!("dumps hold records") };
        assert_eq!(form.fields[9].offset, 40);
        dump(root.path(), "e", 600, 0, 1, 32);
        let message = refused(root.path(), &extra("tag0:i64,tag1:i64"));
        assert!(message.contains("e.600.0: the element size at offset 103 is 32, expected 48 as in"), "{message}");
        let plain = tempfile::tempdir().unwrap();
        dump(plain.path(), "e", 500, 0, 1, 32);
        assert!(refused(plain.path(), &extra("tag0:i64")).contains("omit --extra"));
    }
}
