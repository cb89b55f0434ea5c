"""How files of each format are recognised: by the endings of their names, or by their first bytes.

The formats themselves are imported when they are needed, since they import libraries.
"""

ADIOS2 = (".bp", ".bp4", ".bp5")
HDF5 = (".h5", ".hdf5", ".hdf", ".h5part", ".h5md")
NPZ = (".npz", ".npy")
ARROW = (".arrow", ".arrows", ".feather", ".ipc")
LAMMPS = tuple(f"{name}{packed}" for name in (".lammpstrj", ".lammpsdump", ".dump") for packed in ("", ".gz", ".bz2", ".zst"))
SUFFIXES = tuple(dict.fromkeys((*HDF5, *ADIOS2, *NPZ, *ARROW, *LAMMPS)))
"""The suffixes of all formats, which the command's `package::detect` has, too."""

GZIP_MAGIC = b"\x1f\x8b"
BZIP2_MAGIC = b"BZh"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
COMPRESSED = (GZIP_MAGIC, BZIP2_MAGIC, ZSTD_MAGIC)
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
NPZ_MAGIC = (b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY")
ARROW_FILE_MAGIC = b"ARROW1"
ARROW_STREAM_MAGIC = b"\xff\xff\xff\xff"
LAMMPS_MAGIC = b"ITEM:"
LAMMPS_YAML_MAGIC = b"---\ncreator: LA"
PARQUET_MAGIC = b"PAR1"
BEGINNINGS = (*COMPRESSED, HDF5_MAGIC, *NPZ_MAGIC, ARROW_FILE_MAGIC, ARROW_STREAM_MAGIC, LAMMPS_MAGIC, LAMMPS_YAML_MAGIC)
"""The first bytes of all formats, which the command's `package::detect` has, too."""
