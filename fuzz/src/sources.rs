//! Targets for the input of `turbidite ingest`: VPIC dumps, records described by a layout file, and Parquet files.
//! Every record that a source reports can be read, or an error names the file.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use turbidite_source::{RankReader, Source, SourceOptions, parse_columns};

/// Creates an empty folder of this process, in memory. Its files are rewritten for every input.
fn folder(name: &str) -> PathBuf {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        base.join(format!("turbidite-fuzz-{}", std::process::id()))
    });
    let folder = root.join(name);
    // Files of an earlier input must not remain.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the files of an input");
    folder
}

fn write(path: &Path, content: &[u8]) {
    std::fs::create_dir_all(path.parent().expect("it is below a folder")).expect("a folder");
    std::fs::write(path, content).expect("a file of an input");
}

/// Splits the data into `count` blocks. Each block is preceded by its length in two bytes, except the last, which is
/// the rest.
fn blocks(data: &[u8], count: usize) -> Vec<&[u8]> {
    let mut rest = data;
    let mut blocks = Vec::new();
    for _ in 1..count {
        let length = rest.first_chunk().map_or(0, |raw| usize::from(u16::from_le_bytes(*raw)));
        let body = rest.get(2..).unwrap_or_default();
        let (block, after) = body.split_at(length.min(body.len()));
        blocks.push(block);
        rest = after;
    }
    blocks.push(rest);
    blocks
}

fn block(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_le_bytes()[..], bytes].concat()
}

/// Opens a source, and reads it completely as three ranks would.
fn read(path: &Path, options: &SourceOptions) {
    let Ok(source) = Source::open(path, options) else { return };
    let columns = source.columns().len() - usize::from(source.filler().is_some());
    let mut buffer = Vec::new();
    for epoch in source.epochs() {
        let mut records = 0;
        for mut reader in RankReader::of_epoch(&source, epoch, 3) {
            loop {
                match reader.next(1000, &mut buffer) {
                    Ok(Some(chunk)) => {
                        records += chunk.records as u64;
                        let views = chunk.views(&buffer).expect("records fit their columns");
                        assert_eq!(views.len(), columns);
                        assert!(views.iter().all(|view| view.len() == chunk.records));
                        assert!(buffer.len() <= 64 << 20, "{} bytes at once", buffer.len());
                    }
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
        }
        assert_eq!(records, source.records(epoch), "every record of the epoch");
    }
}

const HEADER_BYTES: usize = 115;

/// Reads two dumps of a step. The data contains the extra columns, the first file and the second file. Unless disabled,
/// the number of particles in each header is corrected.
pub fn vpic(data: &[u8]) {
    let (choice, data) = data.split_first().unwrap_or((&0, data));
    let [extra, first, second] = blocks(data, 3)[..] else { unreachable!("three blocks") };
    let root = folder("vpic");
    for (name, content) in [("T.1/e.1.0", first), ("T.1/e.1.1", second)] {
        let mut content = content.to_vec();
        if choice & 1 == 0 {
            fit(&mut content);
        }
        write(&root.join(name), &content);
    }
    let extra = String::from_utf8_lossy(extra);
    let extra = parse_columns(&extra).unwrap_or_default();
    let species = (choice & 2 == 2).then(|| "e".to_owned());
    read(&root, &SourceOptions { extra, species, ..SourceOptions::default() });
}

/// Truncates a dump to whole particles and sets their number in the header.
fn fit(dump: &mut Vec<u8>) {
    if dump.len() < HEADER_BYTES {
        return;
    }
    let number = |at: usize| dump[at..].first_chunk().map_or(0, |raw| i32::from_le_bytes(*raw));
    let element_bytes = number(103).clamp(1, 1 << 20) as usize;
    let particles = (dump.len() - HEADER_BYTES) / element_bytes;
    dump.truncate(HEADER_BYTES + particles * element_bytes);
    dump[111..115].copy_from_slice(&(particles as i32).to_le_bytes());
}

/// Returns a dump with a header as VPIC writes it, and records.
fn dump(rank: i32, element_bytes: i32, particles: i32) -> Vec<u8> {
    let mut bytes = vec![8, 2, 4, 4, 8];
    bytes.extend_from_slice(&0xcafe_u16.to_le_bytes());
    bytes.extend_from_slice(&0xdead_beef_u32.to_le_bytes());
    bytes.extend_from_slice(&1f32.to_le_bytes());
    bytes.extend_from_slice(&1f64.to_le_bytes());
    for number in [0i32, 3, 1, 8, 1, 1] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    (0..10).for_each(|_| bytes.extend_from_slice(&0.5f32.to_le_bytes()));
    for number in [rank, 2, 0] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&(-1f32).to_le_bytes());
    for number in [element_bytes, 1, particles] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.resize(bytes.len() + (element_bytes * particles) as usize, 7);
    bytes
}

/// Returns the seeds of the corpus.
pub fn vpic_seeds() -> Vec<Vec<u8>> {
    let input = |extra: &[u8], bytes| [vec![0], block(extra), block(&dump(0, bytes, 3)), dump(1, bytes, 2)].concat();
    vec![input(b"", 32), input(b"tag:i64,rest:fixed_bytes(3)", 43)]
}

/// Reads a layout file, and the files that it may describe.
pub fn layout(data: &[u8]) {
    let [text, first, second] = blocks(data, 3)[..] else { unreachable!("three blocks") };
    let root = folder("layout");
    let described = root.join("layout.toml");
    write(&described, text);
    let files = root.join("files");
    for (name, content) in [("T.1/e.1.0", first), ("T.1/e.1.1", second), ("T.2/e.2.0", second), ("7-3.bin", first)] {
        write(&files.join(name), content);
    }
    read(&files, &SourceOptions { layout: Some(described), ..SourceOptions::default() });
}

/// Returns the seeds of the corpus.
pub fn layout_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "path = 'T.{epoch}/e.{epoch}.{rank}'\nheader_bytes = 2\nrecord_bytes = 12\n[[field]]\nname = 'energy'\ntype = 'f32'\nunit = 'mc^2'\n[[field]]\nname = 'id'\ntype = 'u16'\noffset = 6\n[filler]\nname = 'payload'\nbytes = 56\n",
        "path = '{epoch}-{rank}.bin'\nranks = 4\n[[field]]\nname = 'a'\ntype = 'fixed_bytes(3)'\n",
        "format = 'parquet'\npath = 'T.{epoch}/e.{epoch}.{rank}'\n",
    ];
    let input = |text: &str| [block(text.as_bytes()), block(&[1; 26]), vec![2; 38]].concat();
    texts.map(input).into()
}

/// Reads a Parquet file, which may come from any writer.
pub fn parquet(data: &[u8]) {
    let (choice, content) = data.split_first().unwrap_or((&0, data));
    let root = folder("parquet");
    let path = root.join("one.parquet");
    write(&path, content);
    let columns = (choice & 1 == 1).then(|| vec!["energy".to_owned(), "id".to_owned()]);
    read(&path, &SourceOptions { columns, epoch: Some(1), ..SourceOptions::default() });
}

/// Returns files written by the `parquet` crate, one for each encoding and compression, and one of our parts.
pub fn parquet_seeds() -> Vec<Vec<u8>> {
    use std::sync::Arc;

    use ::parquet::arrow::ArrowWriter;
    use ::parquet::basic::{Compression, Encoding};
    use ::parquet::file::properties::WriterProperties;
    use arrow_array::{ArrayRef, Float32Array, Int64Array, RecordBatch, UInt8Array};

    let columns: Vec<(&str, ArrayRef)> = vec![
        ("energy", Arc::new(Float32Array::from_iter_values((0..60).map(|row| row as f32 / 4.0)))),
        ("level", Arc::new(UInt8Array::from_iter_values((0..60).map(|row| row % 7)))),
        ("id", Arc::new(Int64Array::from_iter_values((0..60).map(|row| row - (1 << 40))))),
    ];
    let batch = RecordBatch::try_from_iter(columns).expect("they have the same length");
    let file = |compression, encoding, dictionary| {
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .set_encoding(encoding)
            .set_dictionary_enabled(dictionary)
            .set_data_page_row_count_limit(20)
            .set_max_row_group_row_count(Some(40));
        let mut bytes = vec![0];
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(properties.build())).expect("it fits");
        writer.write(&batch).expect("memory");
        writer.close().expect("memory");
        bytes
    };
    vec![
        file(Compression::UNCOMPRESSED, Encoding::PLAIN, false),
        file(Compression::SNAPPY, Encoding::PLAIN, true),
        file(Compression::LZ4_RAW, Encoding::BYTE_STREAM_SPLIT, true),
        file(Compression::ZSTD(Default::default()), Encoding::PLAIN, false),
        file(Compression::GZIP(Default::default()), Encoding::PLAIN, true),
        file(Compression::BROTLI(Default::default()), Encoding::PLAIN, true),
    ]
}
