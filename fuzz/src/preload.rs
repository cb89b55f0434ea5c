//! A target for the input of the preload library: its configuration, and the paths that the program opens.

use turbidite_source::PathPattern;

use crate::config;

/// Returns the seeds of the corpus.
pub fn seeds() -> Vec<Vec<u8>> {
    let configuration = "[[dataset]]\nfiles = 'particle/T.{epoch}/e.{epoch}.{rank}'\nout = 'out'\nkey = 'energy'\nheader_bytes = 8\nderive = ['energy=sqrt(1+ux*ux)-1 + header.x0']\ndrop = ['ux']\nmode = 'replace'\nspool = '/dev/shm'\nif_exists = 'skip'\nreceivers = 2\n[[dataset.field]]\nname = 'ux'\ntype = 'f32'\n[[dataset.field]]\nname = 'id'\ntype = 'u64'\nunit = 'm'\noffset = 8\n[[dataset.constant]]\nname = 'header.x0'\ntype = 'f32'\noffset = 4\n";
    let patterns =
        ["particle/T.{epoch}/e.{epoch}.{rank}\n/scratch/particle/T.500/e.500.13", "T.{epoch}/{id}\nout/T.3/17"];
    let texts = patterns.iter().map(|text| [&[1], text.as_bytes()].concat());
    let vpic = "[[dataset]]\nformat = 'vpic'\nfiles = 'particle/T.{epoch}/e.{epoch}.{rank}'\nout = 'out'\nkey = 'ux'\n";
    let checked = "[[dataset]]\nfiles = 'T.{epoch}/e.{rank}'\nout = 'out'\nkey = 'ux'\nheader_bytes = 8\nrecords = 'i32@4'\nmagic = ['fe ca@0', '01@2']\n[[dataset.field]]\nname = 'ux'\ntype = 'f32'\n";
    let configurations = [configuration, vpic, checked].map(|text| [&[0], text.as_bytes()].concat());
    configurations.into_iter().chain(texts).collect()
}

/// Reads a configuration, or a pattern and paths, line by line.
pub fn target(data: &[u8]) {
    let (choice, data) = data.split_first().unwrap_or((&0, data));
    if choice & 1 == 0 {
        let path = std::env::temp_dir().join(format!("turbidite-fuzz-{}.toml", std::process::id()));
        std::fs::write(&path, data).expect("a file of an input");
        for plan in config::read(&path).map_or_else(|_| Vec::new(), |configuration| configuration.plans) {
            let bytes = plan.file_record_bytes();
            assert!(bytes > 0 && bytes <= plan.record_bytes);
            assert!(plan.fields.iter().all(|field| field.offset + field.column.data_type.width() <= plan.record_bytes));
            assert!(plan.stored.len() == plan.schema.columns().len());
            let _ = plan.summary();
        }
        return;
    }
    let text = String::from_utf8_lossy(data);
    let mut lines = text.lines();
    let Ok(pattern) = PathPattern::parse(lines.next().unwrap_or_default()) else { return };
    for path in lines {
        let named = pattern.matches(path);
        assert!(named.is_none_or(|named| named.id.is_some() == pattern.names_records()), "{path}");
    }
}
