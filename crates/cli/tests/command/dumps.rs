//! Tests the sources of `ingest`: epochs without the files of some ranks, configurations of the preload library, and
//! files that are not raw records.

use std::path::{Path, PathBuf};

use crate::support::{ends_with, json, ok, text};

const FIELDS: &str = "[[dataset.field]]\nname = 'a'\ntype = 'f32'\n[[dataset.field]]\nname = 'b'\ntype = 'u32'\n";

/// Writes a file of `rows` records for each rank, below a header of 8 bytes that holds the number `epoch`.
fn epoch(folder: &Path, epoch: u64, ranks: &[u32], rows: u32) {
    std::fs::create_dir_all(folder).unwrap();
    for rank in ranks {
        let mut bytes = (epoch as f64).to_le_bytes().to_vec();
        for row in 0..rows {
            bytes.extend((row as f32).to_le_bytes());
            bytes.extend((rank * rows + row).to_le_bytes());
        }
        std::fs::write(folder.join(format!("d.{epoch}.{rank:02}")), bytes).unwrap();
    }
}

fn layout(folder: &Path) -> PathBuf {
    let path = folder.join("layout.toml");
    let text = "path = 'd.{epoch}.{rank}'\nheader_bytes = 8\n".to_owned() + &FIELDS.replace("dataset.", "");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn an_epoch_without_its_last_rank_is_not_indexed() {
    let folder = tempfile::tempdir().unwrap();
    let (run, out) = (folder.path().join("run"), folder.path().join("ds"));
    epoch(&run, 1, &[0, 1, 2], 100);
    epoch(&run, 2, &[0, 1], 100);
    let layout = layout(folder.path());
    let ingest = ["ingest", text(&run), "--layout", text(&layout), "--out", text(&out), "--key", "a"];
    let count = || ok(&["query", text(&out), "--count"]);
    let (_, error) = ends_with(1, &ingest);
    let missing = format!("{}/d.2.02 is missing: epoch 2 has 2 of the 3 ranks of epoch 1\n", run.display());
    assert!(error.starts_with(&format!("turbidite: {missing}")) && !out.exists(), "{error}");
    assert!(error.contains("put the files back") && error.contains("--allow-missing-ranks"), "{error}");

    // The complete epoch can be indexed. Its files are compared again when the other one follows.
    ok(&[&ingest[..], &["--epochs", "1"]].concat());
    let skip = [&ingest[..], &["--if-exists", "skip"]].concat();
    assert!(ends_with(1, &skip).1.contains("d.2.02 is missing"));
    epoch(&run, 2, &[2], 100);
    ok(&skip);
    assert_eq!(count(), "600\n");

    // A restart on fewer ranks.
    epoch(&run, 3, &[0], 100);
    assert!(ends_with(1, &skip).1.contains("d.3.01, "));
    let stated = |ranks| [&skip[..], &["--epochs", "3", "--source-ranks", ranks]].concat();
    assert!(ends_with(1, &stated("2")).1.contains("epoch 3 has 1 of the 2 ranks that --source-ranks states"));
    ok(&stated("1"));
    assert_eq!(count(), "700\n");
    epoch(&run, 4, &[0, 2], 100);
    let allowed = json(&[&skip[..], &["--allow-missing-ranks"]].concat());
    let note = "epochs without the files of some ranks: 3 (1 of 3 files), 4 (2 of 3 files)";
    assert_eq!(allowed["notes"], serde_json::json!([note]));
    assert_eq!(count(), "900\n");
    for (arguments, code, said) in [
        (&["--epochs", "1", "--source-ranks", "2"][..], 1, "d.1.02: rank 2 of epoch 1 is beyond the 2 ranks"),
        (&["--source-ranks", "0"], 2, "--source-ranks"),
    ] {
        let (_, error) = ends_with(code, &[&skip[..], arguments].concat());
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn ranks_of_a_source_without_them_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    epoch(folder.path(), 1, &[0], 10);
    let layout = layout(folder.path());
    let content = std::fs::read_to_string(&layout).unwrap().replace(".{rank}", ".00");
    std::fs::write(&layout, content.replace("d.{epoch}.00", "d.{epoch}.x")).unwrap();
    std::fs::rename(folder.path().join("d.1.00"), folder.path().join("d.1.x")).unwrap();
    let out = folder.path().join("ds");
    let ingest = ["ingest", text(folder.path()), "--layout", text(&layout), "--out", text(&out), "--key", "a"];
    let (_, error) = ends_with(2, &[&ingest[..], &["--source-ranks", "2"]].concat());
    assert!(error.contains("the path 'd.{epoch}.x' has no {rank}; omit the option"), "{error}");
    ok(&[&ingest[..], &["--allow-missing-ranks"]].concat());
}

#[test]
fn a_configuration_of_the_preload_library_is_a_layout() {
    let folder = tempfile::tempdir().unwrap();
    let (run, config) = (folder.path().join("run"), folder.path().join("sim.toml"));
    epoch(&run.join("dumps"), 7, &[0, 1, 2], 100);
    epoch(&run.join("dumps"), 9, &[0, 1, 2], 100);
    let settings = "header_bytes = 8\nderive = ['t:f64=header.step+a*0']\ndrop = ['a']\nindex = ['b']\nif_exists = \
                    'skip'\nmode = 'replace'\nspool = '/dev/shm'\nreceivers = 64\nfiles_per_epoch = 3\nstall_s = 9\n";
    let constant = "[[dataset.constant]]\nname = 'header.step'\ntype = 'f64'\noffset = 0\n";
    let dataset = |name: &str, out: &str| {
        let names = format!("[[dataset]]\nfiles = '{name}'\nout = '{out}'\nkey = 't'\n");
        format!("{names}{settings}{FIELDS}{constant}")
    };
    let two = dataset("dumps/d.{epoch}.{rank}", "out/d.tbd") + &dataset("e.{epoch}.{rank}", "e.tbd");
    std::fs::write(&config, format!("quiet = true\n{two}")).unwrap();

    // As the messages of the library advise, from the run's folder and from that of the files.
    let out = folder.path().join("out/d.tbd");
    std::fs::create_dir(folder.path().join("out")).unwrap();
    for source in [&run, &run.join("dumps")] {
        let ingest = ["ingest", text(source), "--layout", text(&config), "--out", text(&out), "--source-ranks", "3"];
        ok(&ingest);
    }
    assert_eq!(ok(&["query", text(&out), "--where", "t = 9", "--count"]), "300\n");
    assert_eq!(ok(&["query", text(&out), "--count"]), "600\n");
    let stated = json(&["inspect", text(&out)]);
    let names: Vec<&str> =
        stated["columns"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((names, &stated["key"]), (vec!["b", "t"], &serde_json::json!("t")));
    ok(&["query", text(&out), "--where", "b < 5", "--use", "b"]);

    // Options are stronger than settings.
    let other = folder.path().join("other.tbd");
    let ingest = ["ingest", text(&run), "--layout", text(&config), "--out", text(&other)];
    let options = ["--key", "b", "--derive", "c=b*2", "--drop", "b"];
    assert!(ends_with(2, &[&ingest[..], &options].concat()).1.contains("--key: 'b' is not a column"));
    ok(&[&ingest[..], &options[..4]].concat());
    assert_eq!(ok(&["query", text(&other), "--where", "c = 4", "--columns", "b,c"]).lines().count(), 3);
    let failed = ends_with(1, &[&ingest[..], &options[..4], &["--if-exists", "error"]].concat()).1;
    assert!(failed.contains("epoch 7 already exists"), "{failed}");
}

#[test]
fn a_configuration_names_its_datasets_and_limits() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("sim.toml");
    let write = |dataset: &str| std::fs::write(&config, dataset).unwrap();
    let out = folder.path().join("ds");
    let ingest = ["ingest", text(folder.path()), "--layout", text(&config), "--out", text(&out)];
    let refused = |said: &str| {
        let error = ends_with(2, &ingest).1;
        assert!(error.contains("sim.toml: ") && error.contains(said), "{error}");
    };
    let dataset = |name: &str| format!("[[dataset]]\nfiles = '{name}'\nout = '{}.tbd'\nkey = 'a'\n", &name[..1]);
    write(&(dataset("d.{epoch}.{rank}") + &dataset("e.{epoch}.{rank}")));
    refused("Set --out to the out of one of them: d.tbd (files = \"d.{epoch}.{rank}\"), e.tbd (files = ");
    write(&(dataset("d.{epoch}.{id}") + FIELDS));
    refused("only the preload library reads");
    write(&(dataset("d.{epoch}.{rank}") + "format = 'lammps'\n" + FIELDS));
    refused("binary2txt");
    write(&(dataset("d.{epoch}.{rank}") + "header_byte = 8\n" + FIELDS));
    refused("unknown field `header_byte`");
    epoch(folder.path(), 1, &[0], 10);
    let layout = layout(folder.path());
    let (_, error) = ends_with(2, &["ingest", text(folder.path()), "--layout", text(&layout), "--out", text(&out)]);
    assert_eq!(error, "turbidite: --key is missing: the column by which records are sorted\n");
}

#[test]
fn dumps_of_vpic_are_found_by_a_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let (run, config, out) =
        (folder.path().join("run"), folder.path().join("sim.toml"), folder.path().join("eparticle.tbd"));
    std::fs::create_dir_all(run.join("particle/T.500")).unwrap();
    for rank in 0..4 {
        let name = format!("T.500/eparticle.500.{rank}");
        std::fs::copy(crate::support::sample().join(&name), run.join("particle").join(&name)).unwrap();
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/vpic/turbidite.toml");
    std::fs::copy(example, &config).unwrap();
    let ingest = ["ingest", text(&run), "--layout", text(&config), "--out", text(&out)];
    std::fs::rename(run.join("particle/T.500/eparticle.500.3"), folder.path().join("kept")).unwrap();
    let (_, error) = ends_with(1, &ingest);
    assert!(error.contains("T.500/eparticle.500.3 is missing: epoch 500 has 3 of the 4 ranks that "), "{error}");
    let allowed = json(&[&ingest[..], &["--allow-missing-ranks"]].concat());
    std::fs::rename(folder.path().join("kept"), run.join("particle/T.500/eparticle.500.3")).unwrap();
    let whole = json(&[&ingest[..], &["--if-exists", "replace", "--source-ranks", "4"]].concat());
    assert!(allowed["rows"].as_u64() < whole["rows"].as_u64());
    assert_eq!(ok(&["query", text(&out), "--where", "energy > 0 AND x > -1e9", "--count"]), "28672\n");
}

#[test]
fn hdf5_files_are_not_raw_records() {
    let folder = tempfile::tempdir().unwrap();
    epoch(folder.path(), 1, &[0, 1], 10);
    let head = [&b"\x89HDF\r\n\x1a\n"[..], &[0; 80]].concat();
    std::fs::write(folder.path().join("d.1.01"), head).unwrap();
    let (layout, out) = (layout(folder.path()), folder.path().join("ds"));
    let (_, error) =
        ends_with(1, &["ingest", text(folder.path()), "--layout", text(&layout), "--out", text(&out), "--key", "a"]);
    assert!(error.contains("d.1.01: HDF5, not raw records; ") && error.contains("without --layout"), "{error}");
    assert!(error.contains("magic = \"89 48 44 46@0\"") && !out.exists(), "{error}");
}
