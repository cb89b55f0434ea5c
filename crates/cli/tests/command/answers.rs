//! Compares results of the real command on real dumps with a direct scan of the dumps.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::{IDENTITY, Particle, STEPS, csv, ends_with, ingest, json, ok, sample, scan, text};

/// Returns the dataset that all tests here read. It has 16 ranks, and many small runs and pages. The credit timeout is
/// so long that no record is spilled.
fn dataset() -> &'static Path {
    static DATASET: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = DATASET.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("particles");
        let patient = ["--threads", "1", "--patience", "3600000"];
        ingest(&path, &[&["--ranks", "16", "--memtable", "32KiB", "--page-rows", "256"], &patient[..]].concat());
        (folder, path)
    });
    path
}

/// Returns the sorted steps, ids and energies of the matching particles of some steps.
fn expected(steps: &[u64], matches: impl Fn(&Particle) -> bool) -> Vec<(u64, i32, f32)> {
    let mut rows = Vec::new();
    for &step in steps {
        rows.extend(scan(step).iter().filter(|one| matches(one)).map(|one| (step, one.id, one.energy)));
    }
    rows.sort_by(|one, other| one.partial_cmp(other).unwrap());
    rows
}

/// Returns the same rows from the command.
#[track_caller]
fn answered(arguments: &[&str]) -> Vec<(u64, i32, f32)> {
    let base = ["query", text(dataset()), "--columns", "epoch,id,energy"];
    let out = ok(&[&base, arguments].concat());
    assert_eq!(out.lines().next(), Some("epoch,id,energy"));
    let number = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        (cells[0].parse().unwrap(), cells[1].parse().unwrap(), cells[2].parse().unwrap())
    };
    let mut rows: Vec<(u64, i32, f32)> = out.lines().skip(1).map(number).collect();
    rows.sort_by(|one, other| one.partial_cmp(other).unwrap());
    rows
}

#[test]
fn every_record_is_there_once() {
    for step in STEPS {
        let epoch = step.to_string();
        assert_eq!(answered(&["--epoch", &epoch]), expected(&[step], |_| true));
    }
}

#[test]
fn ranges_several_attributes_and_trajectories() {
    let where_epoch = |filter, epoch| answered(&["--where", filter, "--epoch", epoch]);
    let range = expected(&[4000], |one| one.energy >= 1.2f32 && one.energy < 3.0);
    assert!(range.len() > 1000);
    assert_eq!(where_epoch("energy >= 1.2 AND energy < 3", "4000"), range);
    let several = expected(&[2000, 2500, 3000], |one| one.ux > 5.0 && one.uy.abs() < 1.0 && one.energy > 10.0);
    assert!(several.len() > 10);
    assert_eq!(where_epoch("ux > 5 AND abs(uy) < 1 AND energy > 10", "2000..3000"), several);
    let trajectory = answered(&["--where", "id = 221640"]);
    assert_eq!(trajectory, expected(&STEPS, |one| one.id == 221_640));
    assert_eq!(trajectory.iter().map(|row| row.0).collect::<Vec<_>>(), STEPS);
    assert_eq!(where_epoch("energy < 0", "500..4000"), []);
    assert_eq!(where_epoch("energy > 1 AND epoch > 3500", "0..9999"), expected(&[4000], |one| one.energy > 1.0));
}

#[test]
fn order_limit_and_count() {
    let base = ["query", text(dataset()), "--epoch", "3000", "--where", "energy > 2"];
    let expected = expected(&[3000], |one| one.energy > 2.0);
    let out = ok(&[&base[..], &["--columns", "energy", "--order", "--limit", "100"]].concat());
    let energies: Vec<f32> = out.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    let mut smallest: Vec<f32> = expected.iter().map(|row| row.2).collect();
    smallest.sort_by(f32::total_cmp);
    assert_eq!(energies, smallest[..100]);
    assert_eq!(csv(&ok(&[&base[..], &["--limit", "7"]].concat())).len(), 7);
    assert_eq!(ok(&[&base[..], &["--count"]].concat()), format!("{}\n", expected.len()));
    let counted = json(&[&base[..], &["--count"]].concat());
    assert_eq!(counted["count"].as_u64(), Some(expected.len() as u64));
    assert!(counted["cost"]["metrics"]["bytes_read"].as_u64() < counted["cost"]["bytes_of_epochs"].as_u64());
}

#[test]
fn files_hold_what_standard_output_would() {
    let folder = tempfile::tempdir().unwrap();
    let base =
        ["query", text(dataset()), "--epoch", "500", "--where", "energy > 8", "--columns", "id,energy,ux", "--order"];
    let printed = ok(&base);
    let count = printed.lines().count() - 1;
    assert!(count > 10);
    for name in ["rows.csv", "rows.jsonl", "rows.parquet", "rows.arrow"] {
        let path = folder.path().join(name);
        let (out, error) = ends_with(0, &[&base[..], &["-o", text(&path)]].concat());
        assert!(out.is_empty() && error.contains("wrote") && error.contains(name), "{error}");
        let answer = json(&[&base[..], &["-o", text(&path)]].concat());
        assert_eq!(answer["rows"].as_u64(), Some(count as u64), "{name}");
    }
    assert_eq!(std::fs::read_to_string(folder.path().join("rows.csv")).unwrap(), printed);
    let lines = std::fs::read_to_string(folder.path().join("rows.jsonl")).unwrap();
    assert_eq!(ok(&[&base[..], &["--json"]].concat()), lines);
    for (line, row) in lines.lines().zip(csv(&printed)) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(["id", "energy", "ux"].map(|name| object[name].as_f64().unwrap()).to_vec(), row);
    }
    assert_eq!(std::fs::read(folder.path().join("rows.parquet")).unwrap()[..4], *b"PAR1");
    assert_eq!(std::fs::read(folder.path().join("rows.arrow")).unwrap()[..6], *b"ARROW1");
    let table = ok(&[&base[..], &["--format", "table"]].concat());
    assert_eq!(table.lines().next().unwrap().split_whitespace().collect::<Vec<_>>(), ["id", "energy", "ux"]);
    assert_eq!(table.lines().count(), count + 1);
}

#[test]
fn lists_of_queries_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let (queries, log) = (folder.path().join("queries.csv"), folder.path().join("log.csv"));
    std::fs::write(&queries, "epoch,begin,end\n500,0.5,1\n4000,100,inf\n4000,-5,-4\n").unwrap();
    let summary = json(&["query", text(dataset()), "--batch", text(&queries), "--log", text(&log)]);
    let expected = [
        expected(&[500], |one| one.energy >= 0.5 && one.energy <= 1.0).len(),
        expected(&[4000], |one| one.energy >= 100.0).len(),
        0,
    ];
    let log = std::fs::read_to_string(log).unwrap();
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines[0].join(","), "epoch,begin,end,matches,runs,bytes_read,read_s,filter_s,merge_s,total_s");
    let matches: Vec<usize> = lines[1..].iter().map(|line| line[3].parse().unwrap()).collect();
    assert_eq!(matches, expected);
    assert!(lines[1..].iter().all(|line| line.len() == 10));
    assert_eq!(summary["matches"].as_u64(), Some(expected.iter().sum::<usize>() as u64));
}

#[test]
fn explanations_read_nothing_and_agree_with_the_query() {
    let base = ["query", text(dataset()), "--epoch", "4000", "--where", "energy > 100"];
    let words = ok(&[&base[..], &["--explain"]].concat());
    assert!(words.contains("epoch 4000"), "{words}");
    let stated = json(&[&base[..], &["--explain"]].concat());
    let most = stated["epochs"][0]["bytes_most"].as_u64().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rows.csv");
    let answer = json(&[&base[..], &["-o", text(&file)]].concat());
    // Pages that the filter has read may be fetched again with their neighbours when the matching rows are read.
    let least = stated["epochs"][0]["bytes_least"].as_u64().unwrap();
    assert!(answer["metrics"]["bytes_read"].as_u64().unwrap() <= most + least);
    assert!(most > 0 && most < stated["epochs"][0]["bytes"].as_u64().unwrap());
}

#[test]
fn stats_inspect_verify_and_salvage_describe_it() {
    let stats = json(&["stats", text(dataset())]);
    assert_eq!(stats.as_array().unwrap().len(), 8);
    for (epoch, step) in stats.as_array().unwrap().iter().zip(STEPS) {
        assert_eq!((epoch["epoch"].as_u64(), epoch["rows"].as_u64()), (Some(step), Some(28_672)));
        let loads: Vec<f64> = epoch["metrics"]["rows_per_receiver"]
            .as_array()
            .unwrap()
            .iter()
            .map(|load| load.as_f64().unwrap())
            .collect();
        assert_eq!((loads.len(), loads.iter().sum::<f64>()), (16, 28_672.0));
        assert!(epoch["profile"]["read_amplification_p50"].as_f64().unwrap() > 0.0);
    }
    let words = ok(&["stats", text(dataset()), "--epoch", "500"]);
    assert!(words.contains("28,672") && !words.contains("\n4000"), "{words}");
    let words = ok(&["inspect", text(dataset())]);
    assert!(words.contains("energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1") && words.contains("key"), "{words}");
    let part = dataset().join("data/epoch=500/part-00003.parquet");
    let runs = json(&["inspect", text(&part)]);
    let runs = runs["epochs"][0]["runs"].as_array().unwrap();
    assert!(!runs.is_empty() && runs.iter().all(|run| run["part"] == "part-00003.parquet"));
    let verified = json(&["verify", text(dataset())]);
    assert_eq!((verified["clean"].as_bool(), verified["rows"].as_u64()), (Some(true), Some(8 * 28_672)));
    assert_eq!(ok(&["salvage", text(dataset())]), "no unfinished epochs\n");
}

#[test]
fn samples_begin_with_the_overview() {
    let folder = tempfile::tempdir().unwrap();
    let (source, path) = (sample(), folder.path().join("by-velocity"));
    let (source, path) = (text(&source), text(&path));
    let space = ["--key", "space:ux,uy,uz", "--levels", "1", "--part-bytes", "0", "--epochs", "1500"];
    ok(&[&["ingest", source, "--out", path, "--derive", IDENTITY], &space[..]].concat());
    let sampled = |more: &[&str]| -> Vec<i32> {
        let arguments = ["query", path, "--epoch", "1500", "--columns", "id", "--rows", "2000"];
        let out = ok(&[&arguments, more].concat());
        let mut ids: Vec<i32> = out.lines().skip(1).map(|line| line.parse().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    // Level 1 has an eighth of the 28,672 rows.
    let added = json(&["index", "add", path, "overview"]);
    let rows = added["entries"].as_u64().unwrap();
    assert!((3_500..3_700).contains(&rows), "{rows}");
    assert_eq!(ok(&["index", "add", path, "overview"]), "index overview has every epoch already\n");
    assert!(ok(&["index", "list", path]).starts_with("overview: "), "{}", ok(&["index", "list", path]));
    let known: Vec<i32> = expected(&[1500], |_| true).iter().map(|row| row.1).collect();
    for access in [&[][..], &["--use", "overview"], &["--use", "scan"]] {
        let ids = sampled(access);
        assert!((2_000..4_048).contains(&ids.len()) && ids.is_sorted_by(|one, other| one < other));
        assert!(ids.iter().all(|id| known.contains(id)));
    }
    assert!(json(&["verify", path])["clean"].as_bool().unwrap());
    ends_with(2, &["query", path, "--use", "overview"]);
    ends_with(2, &["index", "add", text(dataset()), "overview"]);
    assert_eq!(ok(&["index", "drop", path, "overview"]), "removed index overview\n");
}

#[test]
fn any_number_of_ranks_stores_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = expected(&[1500], |_| true);
    for (ranks, receivers) in [("1", "1"), ("3", "2"), ("4", "4"), ("61", "5")] {
        let path = folder.path().join(format!("of-{ranks}"));
        ingest(&path, &["--ranks", ranks, "--receivers", receivers, "--epochs", "1500"]);
        let out = ok(&["query", text(&path), "--columns", "id"]);
        let mut ids: Vec<i32> = out.lines().skip(1).map(|line| line.parse().unwrap()).collect();
        ids.sort_unstable();
        assert_eq!(ids, wanted.iter().map(|row| row.1).collect::<Vec<_>>(), "{ranks} ranks");
        ok(&["verify", text(&path)]);
    }
}

/// Positions are derived with the header constants of each particle's own file.
#[test]
fn header_constants_are_those_of_each_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("positions");
    let x = "x=header.x0+(i%(header.nx+2)-1+(dx+1)/2)*header.dx";
    ingest(
        &path,
        &["--derive", x, "--derive", "rank:u32=header.rank", "--epochs", "2000", "--drop", "dy", "--unit", "x=d_e"],
    );
    let out = ok(&["query", text(&path), "--columns", "id,x,rank"]);
    let mut found: Vec<(i32, f32, u32)> = out
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.split(',').collect();
            (cells[0].parse().unwrap(), cells[1].parse().unwrap(), cells[2].parse().unwrap())
        })
        .collect();
    found.sort_by_key(|row| row.0);
    let mut wanted: Vec<(i32, f32, u32)> = scan(2000)
        .iter()
        .map(|one| {
            // The grids of ranks 0 and 2 begin at x = 0, and those of ranks 1 and 3 at 64. Each has 128 cells of length
            // 0.5.
            let origin = if one.rank % 2 == 0 { 0.0 } else { 64.0 };
            let x = origin + (f64::from(one.cell % 130) - 1.0 + (f64::from(one.dx) + 1.0) / 2.0) * 0.5;
            (one.id, x as f32, one.rank)
        })
        .collect();
    wanted.sort_by_key(|row| row.0);
    assert_eq!(found, wanted);
    let described = json(&["inspect", text(&path)]);
    let names: Vec<&str> =
        described["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["dx", "dz", "i", "ux", "uy", "uz", "w", "energy", "id", "x", "rank"]);
    assert_eq!(described["columns"][9]["unit"], "d_e");
}

#[test]
fn headerless_traces_get_filler() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("traces");
    for rank in 0..3 {
        let particles = scan(500);
        let energies: Vec<u8> =
            particles.iter().filter(|one| one.rank == rank).flat_map(|one| one.energy.to_le_bytes()).collect();
        std::fs::create_dir_all(source.join("T.500")).unwrap();
        std::fs::write(source.join(format!("T.500/eparticle.500.{rank}")), energies).unwrap();
    }
    let layout = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layouts/carp_trace.toml");
    let path = folder.path().join("ds");
    ok(&["ingest", text(&source), "--layout", text(&layout), "--out", text(&path), "--key", "energy", "--ranks", "8"]);
    let out = ok(&["query", text(&path), "--where", "energy > 5", "--columns", "energy,payload"]);
    let mut found: Vec<f32> =
        out.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert!(out.lines().skip(1).all(|line| line.split(',').nth(1).unwrap().len() == 112));
    found.sort_by(f32::total_cmp);
    let mut wanted: Vec<f32> =
        scan(500).iter().filter(|one| one.rank < 3 && one.energy > 5.0).map(|one| one.energy).collect();
    wanted.sort_by(f32::total_cmp);
    assert_eq!(found, wanted);
}

#[test]
fn records_with_headers_gaps_and_units_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("mesh");
    for (epoch, rank) in [(1u64, 0u64), (1, 1), (30, 0), (30, 1)] {
        let mut bytes = vec![0xff; 64];
        for index in 0..1000u64 {
            let cell = u64::MAX - epoch * 10_000 - rank * 1000 - index;
            bytes.extend(cell.to_le_bytes());
            bytes.extend((index as f64 / 8.0).to_le_bytes());
            bytes.extend([0xee; 4]);
            bytes.extend([(index % 5) as u8, 0xee, 0xee, 0xee]);
        }
        std::fs::create_dir_all(source.join(format!("step-{epoch}"))).unwrap();
        std::fs::write(source.join(format!("step-{epoch}/cells-{rank}.bin")), bytes).unwrap();
    }
    let layout = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layouts/mesh.toml");
    let path = folder.path().join("ds");
    ok(&[
        "ingest",
        text(&source),
        "--layout",
        text(&layout),
        "--out",
        text(&path),
        "--key",
        "cell",
        "--derive",
        "twice:f64=2*density",
    ]);
    let out = ok(&["query", text(&path), "--epoch", "30", "--where", "cell >= 18446744073709240615", "--order"]);
    let lines: Vec<&str> = out.lines().collect();
    // The bound is 2^64 - 1 - 300,000 - 11,000. All 1000 records of rank 0 and all of rank 1 are above it.
    assert_eq!(lines.len(), 2001);
    assert_eq!(lines[0], "cell,density,level,twice,epoch");
    assert_eq!(lines[1], format!("{},124.875,4,249.75,30", u64::MAX - 300_000 - 1999));
    assert_eq!(ok(&["query", text(&path), "--count", "--where", "level = 3 AND density < 1"]), "4\n");
}
