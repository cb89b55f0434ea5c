"""Decompresses files as a stream."""

from __future__ import annotations

import bz2
import gzip
from typing import IO, cast

from turbidite.sources.errors import missing
from turbidite.sources.signatures import BZIP2_MAGIC, GZIP_MAGIC


def decompressed(path: str, start: bytes) -> IO[bytes]:
    """Opens the content of a compressed file, of which `start` has the first bytes.

    Corruption raises `EOFError`, `zlib.error` or an `OSError` without a number.
    """
    if start.startswith(GZIP_MAGIC):
        return cast(IO[bytes], gzip.open(path, "rb"))
    if start.startswith(BZIP2_MAGIC):
        return cast(IO[bytes], bz2.open(path, "rb"))
    try:
        import pyarrow
    except ImportError:
        raise missing("a file compressed with Zstandard", "pyarrow", "arrow") from None
    stream: IO[bytes] = pyarrow.input_stream(path, compression="zstd")
    return stream
