"""Looks up rows by id with one engine, in a process that opens its files once and takes requests from a pipe.

Usage: lookup_peer.py ENGINE FILES load SOURCE | serve

FILES is the dataset of `package` and `expression`, the folder of the databases of `rocksdb` and `leveldb`, a folder of
Parquet files of `duckdb` and `polars`, and the folder of the raw records of `raw`, which compares every id. `load` makes the databases from raw records in SOURCE, one an epoch: their epochs are
never merged, so that each is written once, like ours. A key is an id in big-endian order, a value the other columns: 36
bytes a record, as in the raw files. Records are loaded in ascending order, which is the least work for a database.

`serve` reads a JSON object a line and prints one: {"what": one|track|many|warm, "ids": FILE.npy, "epochs": [...],
"cold": null|opened|closed}. The reply has the microseconds of each lookup, the rows found, and the reads, major page faults
and bytes from storage of a lookup. Files are dropped from the page cache before each `cold` lookup, and opened again
within it if they were `closed`. Rows are returned as each engine returns them: as bytes by the databases, as columns by the
others.
"""

import json
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy

RECORD = numpy.dtype([("id", "<u4"), *((name, "<f4") for name in ("x", "y", "z", "ux", "uy", "uz", "weight", "energy"))])
BLOCK_CACHE_BYTES = 512 << 20
BATCH_ROWS = 1 << 17
BLOOM_BITS = 10
# Records that a scan of raw files reads at a time: they stay in a cache of the processor.
SCAN_ROWS = 1 << 14
# Fewer than the records of a block, so that a lookup of every such key reads all blocks.
WARM_STEP = 50


def keys(ids: numpy.ndarray) -> list[bytes]:
    return ids.astype(">u4").view("V4").tolist()


class Package:
    """`dataset.get`."""

    def __init__(self, folder: Path):
        import turbidite

        self.folder, self.open_dataset = folder, turbidite.open

    def open(self) -> None:
        self.dataset = self.open_dataset(self.folder)

    def close(self) -> None:
        del self.dataset

    def one(self, key: int, epoch: int) -> int:
        return len(self.dataset.get(key, epochs=epoch).to_numpy()["id"])

    def track(self, key: int, epochs: list[int]) -> int:
        return len(self.dataset.get(key).to_numpy()["id"])

    def many(self, ids: numpy.ndarray, epochs: list[int]) -> int:
        return len(self.dataset.tracks(ids=ids, epochs=epochs).to_numpy()["id"])

    def prepared(self, ids: numpy.ndarray) -> list:
        return ids.tolist()


class Expression(Package):
    """`dataset.query`, whose Arrow stream is read on this thread; `to_numpy` reads on one that Ctrl-C can end."""

    def one(self, key: int, epoch: int) -> int:
        return self.read(self.dataset.query(f"id = {key}", epochs=epoch))

    def track(self, key: int, epochs: list[int]) -> int:
        return self.read(self.dataset.query(f"id = {key}"))

    @staticmethod
    def read(query) -> int:
        import pyarrow

        return pyarrow.RecordBatchReader.from_stream(query).read_all().num_rows


class Store:
    """A key-value store with a database an epoch."""

    def __init__(self, folder: Path):
        self.folder = folder

    def open(self) -> None:
        self.databases = {int(path.name): self.opened(path) for path in sorted(self.folder.iterdir())}

    def close(self) -> None:
        for database in self.databases.values():
            database.close()
        self.databases.clear()

    def one(self, key: bytes, epoch: int) -> int:
        return self.databases[epoch].get(key) is not None

    def track(self, key: bytes, epochs: list[int]) -> int:
        return sum(self.databases[epoch].get(key) is not None for epoch in epochs)

    def prepared(self, ids: numpy.ndarray) -> list:
        return keys(ids)

    def load(self, source: Path) -> None:
        for epoch in sorted(int(path.name.removeprefix("E.")) for path in source.glob("E.*")):
            files = sorted((source / f"E.{epoch}").iterdir())
            records = numpy.concatenate([numpy.fromfile(path, RECORD) for path in files])
            records = records[numpy.argsort(records["id"])]
            values = records.view(numpy.uint8).reshape(len(records), -1)[:, 4:]
            path = self.folder / str(epoch)
            path.parent.mkdir(exist_ok=True)
            self.load_epoch(path, records["id"], values)

    @staticmethod
    def batches(ids: numpy.ndarray, values: numpy.ndarray):
        for begin in range(0, len(ids), BATCH_ROWS):
            rows = slice(begin, begin + BATCH_ROWS)
            yield keys(ids[rows]), numpy.ascontiguousarray(values[rows]).view(f"V{values.shape[1]}")[:, 0].tolist()


class RocksDb(Store):
    """RocksDB: each database is one sorted file, made outside of it, and opened for reading only."""

    def __init__(self, folder: Path):
        import rocksdict

        super().__init__(folder)
        self.module = rocksdict
        table = rocksdict.BlockBasedOptions()
        table.set_bloom_filter(BLOOM_BITS, False)
        table.set_block_cache(rocksdict.Cache(BLOCK_CACHE_BYTES * 8))
        table.set_data_block_index_type(rocksdict.DataBlockIndexType.binary_and_hash())
        table.set_data_block_hash_ratio(0.75)
        self.options = rocksdict.Options(raw_mode=True)
        self.options.set_block_based_table_factory(table)
        self.options.set_compression_type(rocksdict.DBCompressionType.none())
        self.options.set_target_file_size_base(1 << 30)
        self.options.set_max_background_jobs(2)

    def opened(self, path: Path):
        return self.module.Rdict(str(path), self.options, access_type=self.module.AccessType.read_only())

    def load_epoch(self, path: Path, ids: numpy.ndarray, values: numpy.ndarray) -> None:
        file = f"{path}.sst"
        writer = self.module.SstFileWriter(self.options)
        writer.open(file)
        for some_keys, some_values in self.batches(ids, values):
            for key, value in zip(some_keys, some_values, strict=True):
                writer[key] = value
        writer.finish()
        database = self.module.Rdict(str(path), self.options)
        move = self.module.IngestExternalFileOptions()
        move.set_move_files(True)
        database.ingest_external_file([file], move)
        database.compact_range(None, None)
        database.close()
        Path(file).unlink(missing_ok=True)

    def many(self, ids: list[bytes], epochs: list[int]) -> int:
        return sum(sum(value is not None for value in self.databases[epoch].get(ids)) for epoch in epochs)


class LevelDb(Store):
    """LevelDB. It maps its files, so the cache of blocks is not used on 64-bit machines."""

    def opened(self, path: Path):
        import plyvel

        return plyvel.DB(
            str(path),
            create_if_missing=True,
            compression=None,
            bloom_filter_bits=BLOOM_BITS,
            lru_cache_size=BLOCK_CACHE_BYTES,
            write_buffer_size=64 << 20,
            max_file_size=64 << 20,
        )

    def load_epoch(self, path: Path, ids: numpy.ndarray, values: numpy.ndarray) -> None:
        database = self.opened(path)
        for some_keys, some_values in self.batches(ids, values):
            with database.write_batch() as batch:
                for key, value in zip(some_keys, some_values, strict=True):
                    batch.put(key, value)
        database.compact_range()
        database.close()

    def many(self, ids: list[bytes], epochs: list[int]) -> int:
        found = 0
        for epoch in epochs:
            get = self.databases[epoch].get
            found += sum(get(key) is not None for key in ids)
        return found


class Parquet:
    """An engine that reads Parquet files."""

    def __init__(self, folder: Path):
        self.folder = folder

    def files(self, epochs: list[int]) -> list[str]:
        return [str(path) for epoch in epochs for path in sorted(self.folder.glob(f"epoch={epoch}/*.parquet"))]

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def one(self, key: int, epoch: int) -> int:
        return self.track(key, [epoch])

    def prepared(self, ids: numpy.ndarray) -> list:
        return ids.tolist()


class DuckDb(Parquet):
    def open(self) -> None:
        import duckdb

        self.connection = duckdb.connect()
        self.connection.execute("SET parquet_metadata_cache = true")

    def close(self) -> None:
        self.connection.close()

    def track(self, key: int, epochs: list[int]) -> int:
        return self.connection.sql(f"SELECT * FROM read_parquet({self.files(epochs)}) WHERE id = {key}").to_arrow_table().num_rows

    def many(self, ids: list[int], epochs: list[int]) -> int:
        import pyarrow

        wanted = pyarrow.table({"id": pyarrow.array(ids, pyarrow.uint32())})
        query = f"SELECT * FROM read_parquet({self.files(epochs)}) SEMI JOIN wanted USING (id)"
        self.connection.register("wanted", wanted)
        return self.connection.sql(query).to_arrow_table().num_rows


class Polars(Parquet):
    def open(self) -> None:
        import polars

        self.polars = polars

    def track(self, key: int, epochs: list[int]) -> int:
        literal = self.polars.lit(key, self.polars.UInt32)
        return self.polars.scan_parquet(self.files(epochs)).filter(self.polars.col("id") == literal).collect().height

    def many(self, ids: list[int], epochs: list[int]) -> int:
        wanted = self.polars.LazyFrame({"id": ids}, schema={"id": self.polars.UInt32})
        return self.polars.scan_parquet(self.files(epochs)).join(wanted, on="id", how="semi").collect().height


class Raw:
    """A scan of the raw files, as a program without an index has to make it: on all cores, a file each."""

    def __init__(self, folder: Path):
        self.folder = folder

    def open(self) -> None:
        self.threads = ThreadPoolExecutor(os.cpu_count())

    def close(self) -> None:
        self.threads.shutdown()

    def track(self, key: int, epochs: list[int]) -> int:
        files = [path for epoch in epochs for path in sorted((self.folder / f"E.{epoch}").iterdir())]
        return sum(self.threads.map(lambda path: self.scan(path, key), files))

    @staticmethod
    def scan(path: Path, key: int) -> int:
        records, rows = numpy.empty(SCAN_ROWS, RECORD), 0
        with open(path, "rb", buffering=0) as file:
            while read_bytes := file.readinto(records):
                rows += numpy.count_nonzero(records["id"][: read_bytes // RECORD.itemsize] == key)
        return int(rows)

    def prepared(self, ids: numpy.ndarray) -> list:
        return ids.tolist()


ENGINES = {
    "package": Package,
    "expression": Expression,
    "rocksdb": RocksDb,
    "leveldb": LevelDb,
    "duckdb": DuckDb,
    "polars": Polars,
    "raw": Raw,
}


def drop_cached(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def reads() -> tuple[int, int, int]:
    """Returns the read calls, major page faults, and bytes from storage of this process."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
    return int(counters["syscr"]), faults, int(counters["read_bytes"])


def difference(before: tuple, after: tuple) -> tuple:
    return tuple(later - earlier for earlier, later in zip(before, after, strict=True))


def answer(engine, request: dict) -> dict:
    what, ids, epochs, cold = (request[name] for name in ("what", "ids", "epochs", "cold"))
    lookups = engine.prepared(numpy.load(ids))
    if what == "warm":
        for key in sorted(lookups)[::WARM_STEP]:
            engine.track(key, epochs)
        return {}
    if what == "many":
        lookups = [numpy.load(ids) if isinstance(engine, Package) else lookups]
    ask, scope = getattr(engine, what), epochs[0] if what == "one" else epochs
    # The counters' own reads.
    own = difference(reads(), reads()) if cold else (0, 0, 0)
    times_us, costs, rows = [], [], 0
    for key in lookups:
        if cold:
            if cold == "closed":
                engine.close()
            drop_cached(engine.folder)
            before = reads()
        began = time.perf_counter()
        if cold == "closed":
            engine.open()
        rows += ask(key, scope)
        times_us.append((time.perf_counter() - began) * 1e6)
        if cold:
            costs.append(difference(own, difference(before, reads())))
    return {"times_us": times_us, "rows": rows, "costs": costs}


def main() -> None:
    name, folder, action = sys.argv[1:4]
    engine = ENGINES[name](Path(folder))
    if action == "load":
        engine.load(Path(sys.argv[4]))
        return
    engine.open()
    for line in sys.stdin:
        print(json.dumps(answer(engine, json.loads(line))), flush=True)
    engine.close()


if __name__ == "__main__":
    main()
