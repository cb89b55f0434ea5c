//! Which files are left to the Python package. `tests/sources` runs its readers, and programs that misbehave in their
//! place.

use std::path::Path;

use super::detect::{is_pattern, reads_file, reads_folder};

#[test]
fn patterns_are_recognised() {
    for pattern in
        ["diags/openpmd_%T.h5", "run_%06T.bp", "dump.*.npz", "dump_???.npz", "step-{epoch}.h5", "snap.{rank}.h5"]
    {
        assert!(is_pattern(Path::new(pattern)), "{pattern}");
    }
    for plain in ["diags/openpmd_100.h5", "100%.h5", "T.100", "a%20b"] {
        assert!(!is_pattern(Path::new(plain)), "{plain}");
    }
}

#[test]
fn files_are_recognised_by_name_or_content() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.100");
    // LAMMPS writes units and time before the timestep if it is asked for them.
    std::fs::write(&path, "ITEM: UNITS\nlj\nITEM: TIMESTEP\n100\n").unwrap();
    assert!(reads_file(&path));
    std::fs::write(&path, "ITEMS").unwrap();
    assert!(!reads_file(&path));
    std::fs::write(&path, b"\x1f\x8b\x08").unwrap();
    assert!(reads_file(&path));
    std::fs::write(&path, "PAR1…PAR1").unwrap();
    assert!(!reads_file(&path));
    assert!(!reads_folder(folder.path()));
    std::fs::write(folder.path().join("openpmd_100.h5"), "").unwrap();
    assert!(reads_folder(folder.path()));
    assert!(reads_file(&folder.path().join("openpmd_100.h5")));
    // A folder of VPIC's dumps stays one, whatever else lies in it.
    std::fs::create_dir(folder.path().join("T.100")).unwrap();
    assert!(!reads_folder(folder.path()));
    std::fs::create_dir(folder.path().join("series.bp")).unwrap();
    assert!(reads_folder(&folder.path().join("series.bp")));
}
