"""The format of a source: the stated one, or the one that a file's name and content show."""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from importlib import import_module

from turbidite.sources import signatures
from turbidite.sources.compressed import decompressed
from turbidite.sources.errors import SourceError, absent, failed, usage
from turbidite.sources.hdf5_files import errors, opened
from turbidite.sources.inventory import Options, Source
from turbidite.sources.patterns import files_of, is_dataset

_CLASSES = {
    "openPMD": ("openpmd_hdf5", "OpenPMDInHDF5"),
    "HDF5": ("hdf5", "HDF5"),
    "LAMMPS": ("lammps", "Lammps"),
    "npz": ("npz", "Npz"),
    "Arrow": ("arrow", "Arrow"),
}
_OF_ADIOS2 = ("openpmd", "OpenPMD")


def source_class(stated: str | None, options: Options) -> type[Source]:
    """Returns the class that reads a source. `stated` is the name of a format, in any case."""
    if stated is None:
        name = _of_files(options)
    else:
        names = {name.lower(): name for name in _CLASSES}
        if stated.lower() not in names:
            raise usage(f"--format: there is no format '{stated}'; the formats are {', '.join(_CLASSES)}")
        name = names[stated.lower()]
    is_adios2 = False
    if name == "openPMD":
        first = files_of(options.path, signatures.SUFFIXES)[0].path
        is_adios2 = is_dataset(first) or first.endswith(signatures.ADIOS2)
    module, kind = _OF_ADIOS2 if is_adios2 else _CLASSES[name]
    found: type[Source] = getattr(import_module(f"turbidite.sources.{module}"), kind)
    return found


def _of_files(options: Options) -> str:
    """Returns the format of the first file, or of another one if the first may be broken, since it need not be read."""
    files = files_of(options.path, signatures.SUFFIXES)
    may_be_broken = options.complete_only or options.epochs is not None
    try:
        return _detected(files[0].path)
    except (SourceError, OSError) as error:
        for file in files[1:] if may_be_broken else ():
            with suppress(SourceError, OSError):
                return _detected(file.path)
        if options.complete_only:
            raise absent(str(error), files[0].path) from None
        raise


def _detected(path: str) -> str:
    if is_dataset(path):
        return "openPMD"
    with open(path, "rb") as file:
        start = file.read(16)
    if start.startswith(signatures.COMPRESSED):
        try:
            with decompressed(path, start) as text:
                start = text.read(16)
        except (OSError, EOFError, zlib.error) as error:
            raise failed(f"cannot be decompressed: {error}", path) from None
    if start.startswith(signatures.HDF5_MAGIC) or path.endswith(signatures.HDF5):
        return "openPMD" if _is_openpmd(path) else "HDF5"
    if start.startswith(signatures.NPZ_MAGIC) or path.endswith(signatures.NPZ):
        return "npz"
    if start.startswith((signatures.ARROW_FILE_MAGIC, signatures.ARROW_STREAM_MAGIC)) or path.endswith(signatures.ARROW):
        return "Arrow"
    if start.startswith((signatures.LAMMPS_MAGIC, signatures.LAMMPS_YAML_MAGIC)):
        return "LAMMPS"
    if start.startswith(signatures.PARQUET_MAGIC):
        raise usage(
            "the file is Parquet: the command reads one by --epoch, and several by a pattern such as 'step-%T.parquet'", path
        )
    what = "is empty" if os.path.getsize(path) == 0 else "has none of the formats that can be read"
    raise usage(f"the file {what}: {', '.join(_CLASSES)}; convert it, or name its format by --format", path)


def _is_openpmd(path: str) -> bool:
    """Returns whether an HDF5 file follows openPMD."""
    with errors(path), opened(path) as file:
        return "openPMD" in file.attrs
