"""Plain writes of as many bytes as an ingest stores: what the storage gives a program that does nothing else.

One file per rank and epoch, written in blocks from memory by a number of threads, then made durable. `direct` uses
O_DIRECT, `buffered` the page cache and fsync. A process of its own, so that its processor time can be told; it prints
the seconds of the writing alone, without the start of Python.

Usage: raw_write.py FOLDER BYTES FILES THREADS BLOCK_BYTES buffered|direct
"""

import mmap
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ALIGNMENT = 4096


def write_file(path: Path, total: int, block: memoryview, direct: bool) -> None:
    """Writes one file and makes it durable; with O_DIRECT the tail is padded and cut off again."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | (os.O_DIRECT if direct else 0)
    file = os.open(path, flags, 0o644)
    written = 0
    while written < total:
        length = min(len(block), total - written)
        if direct:
            length = -(-length // ALIGNMENT) * ALIGNMENT
        written += os.pwrite(file, block[:length], written)
    if written != total:
        os.ftruncate(file, total)
    os.fsync(file)
    os.close(file)


def main() -> None:
    folder, total, files, threads, block_bytes = Path(sys.argv[1]), *map(int, sys.argv[2:6])
    direct = {"direct": True, "buffered": False}[sys.argv[6]]
    # Anonymous memory maps begin at a page, as O_DIRECT demands. The content is of no consequence but not constant.
    block = mmap.mmap(-1, block_bytes)
    block.write(os.urandom(1 << 16) * (block_bytes >> 16))
    view = memoryview(block)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    folder.mkdir()
    share = -(-total // files)
    jobs = [(folder / f"raw.{index}", max(0, min(share, total - index * share))) for index in range(files)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda job: write_file(*job, view, direct), jobs))
    parent = os.open(folder, os.O_RDONLY)
    os.fsync(parent)
    print(time.perf_counter() - wall_s, time.process_time() - cpu_s)


if __name__ == "__main__":
    main()
