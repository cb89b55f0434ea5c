//! Compares the sidecar of the worked example of FORMAT.md with its bytes in `testdata/golden` and in the document.

use std::path::Path;

use super::golden::{compare, stored};
use super::*;
use crate::format::bitmap::bin_numbers::encode;
use crate::format::bitmap::sidecar::{EncodedSection, SidecarIdentity, SidecarReader, SidecarWriter};
use crate::index::bin_column;
use crate::schema::KeyOrder;

/// The columns of the worked example's part, in the order of its rows.
fn columns() -> [(KeyOrder, Vec<u8>); 2] {
    let order = |data_type| KeyOrder::new(data_type).unwrap();
    [
        (order(DataType::F32), [-0.0f32, 0.25, 1.5].map(f32::to_le_bytes).concat()),
        (order(DataType::U16), [8u16, 9, 7].map(u16::to_le_bytes).concat()),
    ]
}

fn identity() -> SidecarIdentity {
    let uuid = |last: u8| Uuid::from_u128(0x0011_2233_4455_4677_8899_aabb_ccdd_ee00 + u128::from(last));
    SidecarIdentity { dataset: uuid(1), commit: uuid(2), epoch: 200, part: PartId { rank: 0, roll: 0 } }
}

fn written(storage: &MemoryStorage, path: &Path) -> Vec<u8> {
    let mut writer = SidecarWriter::create(storage, path, &identity(), 2).unwrap();
    let sections = columns().map(|(order, values)| {
        let binned = bin_column(order, &values, 2);
        let (encoding, numbers) = encode(&binned.numbers, binned.bins.get().len(), None);
        EncodedSection { bins: binned.bins.encode(), encoding, numbers }
    });
    writer.append(3, sections.map(Ok)).unwrap();
    writer.finish().unwrap();
    read_all(storage, path, 1 << 20).unwrap()
}

#[test]
fn the_sidecar_of_the_example_has_the_golden_and_the_documented_bytes() {
    let (storage, path) = (MemoryStorage::new(), Path::new("/part-00000.bitmap"));
    let fresh = written(&storage, path);
    assert!(stored("bitmap/part-00000.bitmap", &fresh) == fresh, "the bytes of sidecars have changed");
    let document = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../FORMAT.md")).unwrap();
    let dump = document.split("```hexdump sidecar\n").nth(1).unwrap().split("```").next().unwrap();
    compare(dump, &fresh);
}

#[test]
fn the_golden_sidecar_is_read() {
    let (storage, path) = (MemoryStorage::new(), Path::new("/part-00000.bitmap"));
    written(&storage, path);
    let reader = SidecarReader::open(&storage, path, &identity(), 2).unwrap();
    assert_eq!(reader.rows(), [3]);
    for ((column, (order, _)), expected) in columns().iter().enumerate().zip([[0, 1, 2], [1, 2, 0]]) {
        let (bins, _) = reader.bins(0, column, *order).unwrap();
        assert_eq!(*reader.numbers(0, column, &bins).unwrap().bytes(), expected);
    }
}
