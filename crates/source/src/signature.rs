//! Recognises file formats by their first bytes.
//!
//! A file that is described as raw records, but begins like a file of another format, would be indexed with its header
//! as records.
//!
//! Invariant: every signature has at least 32 bits, so that records begin like one in at most one file of 2^28.

/// Number of first bytes of a file that [`recognize`] needs. Shorter files are recognised, too.
pub const HEAD_BYTES: usize = 20;

/// The advice for a file that is not raw records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Remedy {
    /// `turbidite ingest` reads the format without a layout.
    OmitLayout,
    /// A layout for Parquet files.
    ParquetLayout,
    /// The records are compressed.
    Decompress,
    /// The records have to be written in another format.
    Convert,
}

struct Signature {
    name: &'static str,
    remedy: Remedy,
    begins: fn(&[u8]) -> bool,
}

impl Remedy {
    /// Returns the advice for a user of `turbidite ingest --layout`.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::OmitLayout => "'turbidite ingest' reads it without --layout (see docs/python.md)",
            Self::ParquetLayout => "a layout with format = \"parquet\" and its path describes it",
            Self::Decompress => "decompress it",
            Self::Convert => "convert it to raw records or Parquet",
        }
    }
}

static SIGNATURES: [Signature; 20] = [
    Signature { name: "HDF5", remedy: Remedy::OmitLayout, begins: |head| head.starts_with(b"\x89HDF\r\n\x1a\n") },
    Signature { name: "netCDF", remedy: Remedy::Convert, begins: is_netcdf },
    Signature { name: "Parquet", remedy: Remedy::ParquetLayout, begins: |head| head.starts_with(b"PAR1") },
    Signature { name: "Arrow", remedy: Remedy::OmitLayout, begins: |head| head.starts_with(b"ARROW1\0\0") },
    // Metadata of BP4 and BP5, and data of BP4.
    Signature { name: "ADIOS2", remedy: Remedy::Convert, begins: |head| head.starts_with(b"ADIOS-BP v") },
    Signature { name: "ADIOS2", remedy: Remedy::Convert, begins: |head| head.starts_with(b"[PGI") },
    Signature { name: "NumPy (.npy)", remedy: Remedy::Convert, begins: |head| head.starts_with(b"\x93NUMPY") },
    Signature { name: "LAMMPS text", remedy: Remedy::OmitLayout, begins: |head| head.starts_with(b"ITEM: ") },
    Signature { name: "a binary dump of LAMMPS", remedy: Remedy::Convert, begins: is_lammps_binary },
    Signature { name: "a DCD trajectory", remedy: Remedy::Convert, begins: |head| head.starts_with(b"\x54\0\0\0CORD") },
    Signature { name: "an XTC or TRR trajectory", remedy: Remedy::Convert, begins: is_gromacs },
    Signature { name: "VTK", remedy: Remedy::Convert, begins: |head| head.starts_with(b"# vtk DataFile") },
    Signature { name: "XML", remedy: Remedy::Convert, begins: |head| head.starts_with(b"<?xml ") },
    Signature { name: "FITS", remedy: Remedy::Convert, begins: |head| head.starts_with(b"SIMPLE  =") },
    Signature { name: "zip (.npz)", remedy: Remedy::OmitLayout, begins: is_zip },
    Signature { name: "gzip", remedy: Remedy::Decompress, begins: is_gzip },
    Signature { name: "zstd", remedy: Remedy::Decompress, begins: is_zstd },
    Signature { name: "bzip2", remedy: Remedy::Decompress, begins: is_bzip2 },
    Signature { name: "xz", remedy: Remedy::Decompress, begins: |head| head.starts_with(b"\xfd7zXZ\0") },
    Signature { name: "LZ4", remedy: Remedy::Decompress, begins: is_lz4 },
];

/// Returns the name of the format of a file that begins with `head`, or `None` if the file may hold raw records. The
/// first [`HEAD_BYTES`] bytes suffice.
///
/// ```
/// use turbidite_source::signature::recognize;
///
/// assert_eq!(recognize(b"\x89HDF\r\n\x1a\n\0\0\0\0"), Some("HDF5"));
/// assert_eq!(recognize(&1.5f64.to_le_bytes()), None);
/// ```
pub fn recognize(head: &[u8]) -> Option<&'static str> {
    find(head).map(|(name, _)| name)
}

/// Returns the name of the format, and what to do with the file.
pub(crate) fn find(head: &[u8]) -> Option<(&'static str, Remedy)> {
    SIGNATURES.iter().find(|signature| (signature.begins)(head)).map(|found| (found.name, found.remedy))
}

/// The number 1,993 or 1,995, and a length or a number of atoms below 2^24.
fn is_gromacs(head: &[u8]) -> bool {
    matches!(head, [0, 0, 7, 0xc9 | 0xcb, 0, ..])
}

/// The length of the magic, as a negative number, and the magic.
fn is_lammps_binary(head: &[u8]) -> bool {
    matches!(head.split_first_chunk(), Some(([_, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], magic)) if magic.starts_with(b"DUMP"))
}

/// The classic formats. netCDF-4 is HDF5. The number of records is followed by the tag of the dimensions, which may be
/// absent.
fn is_netcdf(head: &[u8]) -> bool {
    let Some((b"CDF", [version, after @ ..])) = head.split_first_chunk() else { return false };
    let number = match version {
        1 | 2 => 4,
        5 => 8,
        _ => return false,
    };
    after.get(number..number + 4).is_some_and(|tag| matches!(tag, [0, 0, 0, 0 | 10]))
}

/// A local file header: the version that is needed, in tenths, and the method of compression.
fn is_zip(head: &[u8]) -> bool {
    let Some((b"PK\x03\x04", [version, 0, _, _, method, 0, ..])) = head.split_first_chunk() else { return false };
    (10..=63).contains(version) && matches!(method, 0 | 8 | 9 | 12 | 14 | 93 | 95)
}

/// Method 8 is deflate, the upper three flags are reserved, and the first block has one of three types.
fn is_gzip(head: &[u8]) -> bool {
    let [0x1f, 0x8b, 8, flags, _, _, _, _, extra, system, after @ ..] = head else { return false };
    let first_block = after.first().filter(|_| *flags == 0);
    flags & 0xe0 == 0
        && matches!(extra, 0 | 2 | 4)
        && matches!(system, 0..=13 | 19 | 255)
        && first_block.is_none_or(|block| block & 6 != 6)
}

/// A bit of the frame's descriptor is reserved.
fn is_zstd(head: &[u8]) -> bool {
    matches!(head, [0x28, 0xb5, 0x2f, 0xfd, descriptor, ..] if descriptor & 8 == 0)
}

/// The level, and the mark of a block or of the end.
fn is_bzip2(head: &[u8]) -> bool {
    let Some((b"BZh", [b'1'..=b'9', after @ ..])) = head.split_first_chunk() else { return false };
    after.starts_with(b"\x31\x41\x59\x26\x53\x59") || after.starts_with(b"\x17\x72\x45\x38\x50\x90")
}

/// A frame of version 1 with a maximum block size of 64 KiB to 4 MiB.
fn is_lz4(head: &[u8]) -> bool {
    let [0x04, 0x22, 0x4d, 0x18, flags, block, ..] = head else { return false };
    flags >> 6 == 1 && flags & 2 == 0 && block & 0x8f == 0 && block >> 4 >= 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The first bytes of real files, or of files as the formats' specifications describe them.
    const HEADS: [(&str, &[u8]); 28] = [
        ("HDF5", b"\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0"),
        ("netCDF", b"CDF\x01\0\0\0\0\0\0\0\x0a\0\0\0\x02"),
        ("netCDF", b"CDF\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\0"),
        ("netCDF", b"CDF\x05\0\0\0\0\0\0\0\x07\0\0\0\x0a"),
        ("Parquet", b"PAR1\x15\x04\x15\x90"),
        ("Arrow", b"ARROW1\0\0\xff\xff\xff\xff"),
        ("ADIOS2", b"ADIOS-BP v2.9.1 Index Table"),
        ("ADIOS2", b"[PGI\x20\x01\0\0\0\0\0\0n"),
        ("NumPy (.npy)", b"\x93NUMPY\x01\0v\0{'descr'"),
        ("LAMMPS text", b"ITEM: TIMESTEP\n0\n"),
        ("a binary dump of LAMMPS", b"\xf6\xff\xff\xff\xff\xff\xff\xffDUMPCUSTOM\x01\0\0\0"),
        ("a DCD trajectory", b"\x54\0\0\0CORD\x03\0\0\0\0\0\0\0"),
        ("an XTC or TRR trajectory", b"\0\0\x07\xc9\0\0\0\x0d\0\0\0\x0cGMX_trn_file"),
        ("an XTC or TRR trajectory", b"\0\0\x07\xcb\0\0\x01\xf4\0\0\0\0"),
        ("VTK", b"# vtk DataFile Version 3.0\n"),
        ("XML", b"<?xml version=\"1.0\"?>"),
        ("FITS", b"SIMPLE  =                    T"),
        ("zip (.npz)", b"PK\x03\x04\x14\0\0\0\0\0\0\0\x21\0"),
        ("zip (.npz)", b"PK\x03\x04\x2d\0\0\0\x08\0\x21\0"),
        ("gzip", b"\x1f\x8b\x08\x08\xd1\x10\x9a\x65\x02\xffdump.bin\0"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\x00\x03\x4b"),
        ("gzip", b"\x1f\x8b\x08\0\0\0\0\0\x04\x03"),
        ("zstd", b"\x28\xb5\x2f\xfd\x04\x58\x19"),
        ("bzip2", b"BZh91AY&SY\x86\xa2"),
        ("bzip2", b"BZh9\x17\x72\x45\x38\x50\x90\0\0\0\0"),
        ("xz", b"\xfd7zXZ\0\0\x04\xe6\xd6"),
        ("LZ4", b"\x04\x22\x4d\x18\x64\x40\xa7"),
        ("LZ4", b"\x04\x22\x4d\x18\x44\x70\x1d"),
    ];

    #[test]
    fn formats_are_recognised_by_their_first_bytes() {
        for (name, head) in HEADS {
            assert_eq!(recognize(head), Some(name), "{head:?}");
            assert_eq!(recognize(&head[..head.len().min(HEAD_BYTES)]), Some(name), "{head:?}");
        }
        for signature in &SIGNATURES {
            let head = HEADS.iter().find(|(_, head)| (signature.begins)(head));
            assert!(head.is_some_and(|(name, _)| *name == signature.name), "{} is not tested", signature.name);
        }
    }

    /// Any other byte among the first four is another format.
    #[test]
    fn first_bytes_count() {
        for (name, head) in HEADS {
            for (index, bit) in (0..4).flat_map(|index| (0..8).map(move |bit| (index, bit))) {
                let mut other = head.to_vec();
                other[index] ^= 1 << bit;
                assert!(recognize(&other).is_none_or(|found| found == name), "{other:?}");
            }
            assert_eq!(recognize(&head[..3]), None);
        }
        assert_eq!(recognize(b""), None);
    }

    /// Records that begin with four bytes of a signature, but do not go on like the format.
    #[test]
    fn numbers_that_look_like_signatures_are_records() {
        let ids = |first: u64| [first.to_le_bytes(), (first + 1).to_le_bytes(), (first + 2).to_le_bytes()].concat();
        for first in [0x0008_8b1f, 0x0403_4b50, 0xfd2f_b528_u64 | 8 << 32, 0x184d_2204, 0x0146_4443] {
            assert_eq!(recognize(&ids(first)), None, "{first:x}");
        }
    }

    proptest! {
        /// 2^8 files of random numbers begin like a signature with a probability of less than 2^-19.
        #[test]
        fn random_records_are_not_taken(
            floats in prop::array::uniform5(any::<f32>()),
            doubles in prop::array::uniform3(any::<f64>()),
            integers in prop::array::uniform3(any::<u64>()),
        ) {
            let floats: Vec<u8> = floats.iter().flat_map(|value| value.to_le_bytes()).collect();
            let doubles: Vec<u8> = doubles.iter().flat_map(|value| value.to_le_bytes()).collect();
            let integers: Vec<u8> = integers.iter().flat_map(|value| value.to_le_bytes()).collect();
            for records in [floats, doubles, integers] {
                prop_assert_eq!(recognize(&records), None);
            }
        }
    }
}
