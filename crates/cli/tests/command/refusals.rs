//! Tests requests that must fail: their exit codes, and messages that name the file and state what to do. Nothing may
//! change.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::support::{ENERGY, IDENTITY, ends_with, ingest, json, ok, run, sample, text};
use turbidite::storage::{FileSystem, Storage};
use turbidite::store::{DatasetPaths, WriterLock};

/// Creates a dataset of two steps, which is small enough to create one for each test.
fn two_steps() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("particles");
    ingest(&path, &["--epochs", "500..1000", "--ranks", "3"]);
    (folder, path)
}

/// Creates a copy of one step of the sample, which a test may modify.
fn dumps() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("dumps");
    std::fs::create_dir_all(source.join("T.500")).unwrap();
    for rank in 0..4 {
        let name = format!("T.500/eparticle.500.{rank}");
        std::fs::copy(sample().join(&name), source.join(&name)).unwrap();
    }
    (folder, source)
}

#[track_caller]
fn refused(code: i32, arguments: &[&str], words: &[&str]) {
    let (out, error) = ends_with(code, arguments);
    assert!(out.is_empty(), "{out}");
    assert!(error.starts_with("turbidite: "), "{error}");
    for word in words {
        assert!(error.contains(word), "'{word}' is not in: {error}");
    }
}

#[test]
fn wrong_requests_end_with_2() {
    let (_folder, path) = two_steps();
    let ds = text(&path);
    for (arguments, words) in [
        (&["query", ds, "--where", "energy >"][..], &["--where 'energy >'"][..]),
        (&["query", ds, "--where", "enrgy > 1"], &["enrgy", "energy"]),
        (&["query", ds, "--columns", "id,nope"], &["nope", "energy"]),
        (&["query", ds, "--box", "energy=5:5"], &["--box 'energy=5:5'", "empty"]),
        (&["query", ds, "--box", "nope=0:1", "--where", "energy > 1"], &["--box 'nope=0:1'", "nope", "energy"]),
        (&["query", ds, "--box", "energy=120:10", "--period", "128"], &["--box 'energy=120:10'", "energy=120:138"]),
        (&["query", ds, "--box", "energy=0:1", "--period", "-1"], &["--period '-1'", "above zero"]),
        (&["query", ds, "--period", "128"], &["--box"]),
        (&["query", ds, "--box", "energy=0:1", "--batch", "list.csv"], &["--box", "--batch"]),
        (&["hist", ds, "--by-bins", "3"], &["--by"]),
        (&["hist", ds, "--box", "nope=0:1"], &["--box 'nope=0:1'", "nope"]),
        (&["tracks", ds, "--box", "energy=0:1", "--id", "ux"], &["--at"]),
        (&["tracks", ds, "--box", "energy=1:0", "--at", "1", "--id", "id"], &["--box 'energy=1:0'"]),
        (&["query", ds, "--epoch", "9..x"], &["9..x"]),
        (&["query", ds, "--epoch", "9..3"], &["'9..3' ends before it begins; write 3..9"]),
        (&["query", ds, "-o", "rows.xyz"], &["rows.xyz", ".parquet"]),
        (&["query", ds, "--count", "--order"], &["--count", "--order"]),
        (&["query", ds, "--log", "x.csv"], &["--batch"]),
        (&["query", ds, "--nope"], &["--nope"]),
        (&["query"], &["DATASET"]),
        (&[], &["turbidite"]),
        (&["truncate", ds], &["--after"]),
    ] {
        refused(2, arguments, words);
    }
    let long = format!("{} OR enrgy > 1", ["energy > 1"; 40].join(" OR "));
    let error = ends_with(2, &["query", ds, "--where", &long]).1;
    assert!(error.starts_with("turbidite: --where: at character 561: there is no column 'enrgy'"), "{error}");
    let source = sample();
    let to = ["ingest", text(&source), "--out", ds];
    for (more, words) in [
        (&["--key", "energy"][..], &["--key", "energy", "--derive", "ux"][..]),
        (&["--key", "ux", "--derive", "e=ux+nope"], &["--derive", "nope"]),
        (&["--key", "ux", "--derive", "e=header.nope"], &["header.nope"]),
        (&["--key", "ux", "--derive", "ux=uy"], &["ux"]),
        (&["--key", "ux", "--species", "ion"], &["ion", "eparticle"]),
        (&["--key", "ux", "--extra", "tag"], &["--extra", "NAME:TYPE"]),
        (&["--key", "ux", "--drop", "nope"], &["--drop", "nope"]),
        (&["--key", "ux", "--unit", "nope=m"], &["--unit", "nope"]),
        (&["--key", "ux", "--epochs", "7"], &["no epoch 7", "500"]),
        (&["--key", "ux", "--ranks", "0"], &["ranks"]),
        (&["--key", "ux", "--ranks", "4", "--receivers", "5"], &["receivers"]),
        (&["--key", "ux", "--memtable", "8 parsec"], &["parsec"]),
        (&["--key", "ux", "--if-exists", "maybe"], &["replace"]),
    ] {
        refused(2, &[&to, more].concat(), words);
    }
}

#[test]
fn what_is_not_there_is_named() {
    let (folder, path) = two_steps();
    let nowhere = folder.path().join("nowhere");
    for command in [&["query"][..], &["stats"], &["verify"], &["inspect"], &["salvage"], &["truncate", "--after", "1"]]
    {
        let arguments = [command, &[text(&nowhere)]].concat();
        refused(1, &arguments, &["nowhere", "turbidite ingest"]);
        assert!(!nowhere.exists(), "{command:?} made the folder");
    }
    refused(1, &["query", text(&path), "--epoch", "123"], &["123", "inspect"]);
    refused(1, &["stats", text(&path), "--epoch", "123"], &["123"]);
    let out = folder.path().join("never");
    refused(1, &["ingest", text(&nowhere), "--out", text(&out), "--key", "ux"], &["nowhere"]);
    assert!(!out.exists());
    refused(1, &["query", text(&path), "-o", "/nowhere/rows.csv"], &["/nowhere/rows.csv"]);
    refused(1, &["query", text(&path), "--batch", "/nowhere/list.csv"], &["/nowhere/list.csv"]);
}

#[test]
fn epochs_that_exist() {
    let (_folder, path) = two_steps();
    let source = sample();
    let again =
        ["ingest", text(&source), "--out", text(&path), "--key", "energy", "--derive", ENERGY, "--derive", IDENTITY];
    refused(1, &again, &["500", "--if-exists replace", "--if-exists skip"]);
    let stated = json(&[&again[..], &["--if-exists", "skip", "--epochs", "500..1500"]].concat());
    let skipped: Vec<bool> =
        stated["epochs"].as_array().unwrap().iter().map(|epoch| epoch["skipped"] == true).collect();
    assert_eq!(skipped, [true, true, false]);
    assert_eq!(stated["rows"].as_u64(), Some(28_672));
    ok(&[&again[..], &["--if-exists", "replace", "--epochs", "1000", "--ranks", "5"]].concat());
    assert_eq!(ok(&["query", text(&path), "--count"]), format!("{}\n", 3 * 28_672));
    ok(&["verify", text(&path)]);
    let (out, _) = ends_with(0, &["truncate", text(&path), "--after", "500"]);
    assert_eq!(out, "removed 2 epochs: 1000, 1500\n");
    assert_eq!(ok(&["query", text(&path), "--count"]), "28672\n");
    assert_eq!(ok(&["truncate", text(&path), "--after", "500"]), "there are no epochs after 500\n");
}

#[test]
fn another_shape_is_refused() {
    let (_folder, path) = two_steps();
    let source = sample();
    refused(1, &["ingest", text(&source), "--out", text(&path), "--key", "ux"], &[text(&path), "another schema"]);
}

#[test]
fn a_second_writer_is_refused() {
    let (_folder, path) = two_steps();
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let (lock, _) = WriterLock::acquire(&storage, &DatasetPaths::new(&path), false).unwrap();
    let source = sample();
    let more = ["--key", "energy", "--derive", ENERGY, "--derive", IDENTITY, "--epochs", "1500"];
    let arguments = [&["ingest", text(&source), "--out", text(&path)][..], &more].concat();
    let running = format!("is running: pid {} on ", std::process::id());
    let content = || std::fs::read(path.join("_turbidite/lock")).unwrap();
    let before = content();
    // This process runs, so nobody breaks its lock, and nothing proposes to.
    let truncate = ["truncate", text(&path), "--after", "1"];
    for command in [&arguments[..], &truncate] {
        for more in [&[][..], &["--break-lock"]] {
            let (_, error) = ends_with(1, &[command, more].concat());
            assert!(error.contains("_turbidite/lock is locked by") && error.contains(&running), "{error}");
            assert!(error.contains(", since 20") && error.contains("; wait until it ends, or end it"), "{error}");
            assert!(!error.contains("break"), "{error}");
        }
    }
    lock.check().unwrap();
    assert_eq!(content(), before);
    assert_eq!(ok(&["query", text(&path), "--count"]), format!("{}\n", 2 * 28_672), "readers need no lock");
    let (out, _) = ends_with(0, &["salvage", text(&path)]);
    assert!(out.contains(&format!("process {}", std::process::id())), "{out}");
    refused(1, &["salvage", text(&path), "--discard"], &[&running]);
    // From another host, nobody can tell.
    let mut holder: serde_json::Value = serde_json::from_slice(&before).unwrap();
    holder["host"] = "elsewhere".into();
    std::fs::write(path.join("_turbidite/lock"), holder.to_string()).unwrap();
    refused(
        1,
        &arguments,
        &["on elsewhere, since 20", "cannot be checked from here: it is on another", "--break-lock"],
    );
    let (_, error) = ends_with(0, &[&arguments[..], &["--break-lock"]].concat());
    assert!(error.contains("broke the lock"), "{error}");
    drop(lock);
    assert_eq!(ok(&["query", text(&path), "--count"]), format!("{}\n", 3 * 28_672));
}

/// Flips a bit in the middle of a file.
fn flip(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn corruption_ends_with_3_and_names_the_file() {
    let (_folder, path) = two_steps();
    let part = path.join("data/epoch=500/part-00001.parquet");
    flip(&part);
    let (out, error) = ends_with(3, &["verify", text(&path)]);
    assert!(out.contains("PROBLEMS FOUND") && error.contains("epoch=500/part-00001.parquet"), "{out}{error}");
    let answer = run(&["verify", text(&path), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    assert_eq!((answer.status.code(), report["clean"].as_bool()), (Some(3), Some(false)));
    let findings = report["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["path"].as_str().unwrap().ends_with("part-00001.parquet")));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let (_, error) = ends_with(3, &["query", text(&path), "--epoch", "500", "-o", text(&file)]);
    assert!(error.contains("part-00001.parquet") && error.contains("turbidite verify"), "{error}");
    assert!(!file.exists() && std::fs::read_dir(folder.path()).unwrap().next().is_none(), "no half of an answer");
    ok(&["query", text(&path), "--epoch", "1000"]);

    let descriptor = path.join("_turbidite/dataset.json");
    flip(&descriptor);
    refused(3, &["query", text(&path), "--epoch", "1000"], &["dataset.json"]);
}

#[test]
fn spoiled_dumps_are_named_with_the_place() {
    let spoil = |change: &dyn Fn(&mut Vec<u8>)| {
        let (folder, source) = dumps();
        let dump = source.join("T.500/eparticle.500.2");
        let mut bytes = std::fs::read(&dump).unwrap();
        change(&mut bytes);
        std::fs::write(&dump, bytes).unwrap();
        let out = folder.path().join("ds");
        let (said, error) = ends_with(1, &["ingest", text(&source), "--out", text(&out), "--key", "ux"]);
        assert!(said.is_empty() && error.contains("T.500/eparticle.500.2") && !out.exists(), "{said}{error}");
        error
    };
    assert!(spoil(&|bytes| bytes[5] = 0).contains("offset 5 is 0xca00, expected 0xcafe"));
    assert!(spoil(&|bytes| bytes[31] = 1).contains("offset 31"));
    assert!(spoil(&|bytes| bytes.truncate(1000)).contains("1000 bytes, expected"));
    assert!(spoil(&|bytes| bytes.clear()).contains("0 bytes, expected at least the 115"));
    assert!(spoil(&|bytes| bytes[103] = 48).contains("48 for each of the"));
    let (_folder, source) = dumps();
    std::fs::remove_file(source.join("T.500/eparticle.500.3")).unwrap();
    refused(
        1,
        &["ingest", text(&source), "--out", "/nowhere", "--key", "ux"],
        &["eparticle.500.3 is missing", "4 ranks"],
    );
}

#[test]
fn a_derived_value_that_does_not_fit_leaves_no_epoch() {
    let (folder, source) = dumps();
    let out = folder.path().join("ds");
    let arguments = ["ingest", text(&source), "--out", text(&out), "--key", "ux", "--derive", "n:u8=i"];
    refused(2, &arguments, &["eparticle.500.", "u8"]);
    assert_eq!(ok(&["query", text(&out), "--count"]), "0\n");
    // The unfinished epoch can be listed and removed, and the dataset is not locked.
    let stated = json(&["salvage", text(&out), "--discard"]);
    assert!(stated["writer"].is_null(), "{stated}");
    assert_eq!(ok(&["salvage", text(&out)]), "no unfinished epochs\n");
    ok(&["verify", text(&out)]);
}

#[test]
fn errors_are_json_for_programs() {
    for (code, class, arguments) in [
        (1, "failed", &["query", "/nowhere", "--json"][..]),
        (2, "usage", &["query", "--json"]),
        (2, "usage", &["query", "/nowhere", "-o", "x.y", "--json"]),
    ] {
        let (out, error) = ends_with(code, arguments);
        let stated: serde_json::Value = serde_json::from_str(&error).unwrap();
        assert_eq!((out.as_str(), stated["error"]["class"].as_str()), ("", Some(class)));
        assert!(stated["error"]["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let (_folder, path) = two_steps();
    let mut child = Command::new(env!("CARGO_BIN_EXE_turbidite"))
        .args(["query", text(&path)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn help_and_version_are_results() {
    for arguments in [&["--help"][..], &["--version"], &["ingest", "--help"], &["query", "-h"]] {
        let (out, error) = ends_with(0, arguments);
        assert!(out.contains("turbidite") && error.is_empty());
    }
    assert!(ok(&["ingest", "--help"]).contains("header.x0"));
}

#[test]
fn an_index_of_an_epoch_that_does_not_exist_is_refused() {
    let (_folder, path) = two_steps();
    let ds = text(&path);
    let said = format!(
        "turbidite: epoch 999 does not exist in {ds}\nturbidite: 'turbidite inspect' lists the existing epochs\n"
    );
    assert_eq!(ends_with(1, &["query", ds, "--epoch", "999"]).1, said);
    assert_eq!(ends_with(1, &["index", "add", ds, "id", "--epoch", "999"]).1, said);
    refused(2, &["index", "add", ds, "id", "--epoch", "600..900"], &["has no epoch of 600..900", "inspect"]);
    assert!(!path.join("_turbidite/index").exists(), "no index was created");
    assert_eq!(json(&["index", "add", ds, "id", "--epoch", "500..900"])["epochs"], serde_json::json!([500]));
    assert_eq!(ok(&["index", "add", ds, "id", "--epoch", "500"]), "index id has every epoch already\n");
    assert_eq!(ends_with(1, &["index", "add", ds, "id", "--epoch", "999"]).1, said);
}

#[test]
fn indexes_that_cannot_be_listed_are_named() {
    let (_folder, path) = two_steps();
    let (ds, folder) = (text(&path), path.join("_turbidite/index"));
    ok(&["index", "add", ds, "id"]);
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "").unwrap();
    let query = ["query", ds, "--where", "id < 100", "--count"];
    let (out, error) = ends_with(0, &query);
    assert!(out.trim().parse::<u64>().unwrap() > 0, "{out}");
    let cause = format!("cannot list {}", folder.display());
    assert!(error.contains(&format!("indexes were ignored: {cause}")) && error.lines().count() == 1, "{error}");
    assert!(json(&query)["cost"]["metrics"]["corrupt_indexes"].as_u64().unwrap() > 0);
    let (_, explained) = ends_with(0, &["query", ds, "--where", "id < 100", "--explain"]);
    assert_eq!(explained, error);
    refused(1, &[&query[..], &["--use", "id"]].concat(), &[&format!("index 'id' cannot be used: {cause}")]);
}

#[test]
fn a_truncation_names_the_indexes_that_it_cannot_change() {
    let (_folder, path) = two_steps();
    let ds = text(&path);
    ok(&["index", "add", ds, "id"]);
    let index = path.join("_turbidite/index/id");
    let holder = r#"{"token":"0123456789abcdef0123456789abcdef","host":"elsewhere","boot":"","namespace":"","#;
    let held = || {
        let holder = format!("{holder}{}", r#""process":1,"started":null,"job":null}"#);
        std::fs::write(index.join("_turbidite/lock"), holder).unwrap();
    };
    held();
    let (out, error) = ends_with(0, &["truncate", ds, "--after", "500"]);
    assert_eq!(out, "removed 1 epoch: 1000\n");
    assert!(error.contains(text(&index)) && error.contains("elsewhere") && error.contains("index add"), "{error}");
    let said = json(&["truncate", ds, "--after", "400"]);
    assert_eq!((&said["removed"], &said["stale_indexes"]), (&serde_json::json!([500]), &serde_json::json!([index])));
    let (out, error) = ends_with(0, &["truncate", ds, "--after", "300", "--break-lock"]);
    assert!(out.contains("no epochs") && error.contains("broke the lock of process 1 on elsewhere"), "{error}");
    assert!(json(&["truncate", ds, "--after", "300"])["stale_indexes"].as_array().unwrap().is_empty());
    assert!(std::fs::read_dir(index.join("data")).unwrap().next().is_none());
}

#[test]
fn an_ingest_with_an_index_reads_no_manifest_of_other_epochs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("particles");
    ingest(&path, &["--epochs", "500", "--index", "id"]);
    for name in std::fs::read_dir(path.join("_turbidite/manifest")).unwrap() {
        std::fs::write(name.unwrap().path(), "corrupt").unwrap();
    }
    let out = ingest(&path, &["--epochs", "1000", "--index", "id"]);
    assert!(out.contains("index id has ") && out.contains(" of 1 epoch: "), "{out}");
}

/// A path within a dataset is one of its epochs or parts, or says where the dataset is.
#[test]
fn paths_within_a_dataset_are_named() {
    let (_folder, path) = two_steps();
    let data = path.join("data");
    refused(1, &["query", text(&data)], &["the folder of a dataset's Parquet files; name the folder above"]);
    let part = path.join("data/epoch=500/part-04711.parquet");
    refused(1, &["inspect", text(&part)], &["cannot find", "part-04711.parquet"]);
}
