"""Boxes of datasets that are clustered by space, beside Polars on a copy in the order of a Hilbert curve.

Four domains of the same number of records: real dumps of a run that is one cell thick, and even, flat and clustered places. Each
contestant returns all columns of the rows in the same boxes, in turns, in one process with the files open.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy
import polars
from common import COMMAND, DUMPS, RANKS, measure, median, run, say
from pyarrow import parquet
from support import raw, vpic

ROWS, QUICK_ROWS = 2_621_440, 655_360
RECORD = numpy.dtype([(name, "<f4") for name in ("x", "y", "z", "ux", "uy", "uz", "energy", "w")] + [("id", "<u4")])
SHARES, BOXES, EPOCH = (0.001, 0.01, 0.1), 12, 1
# Rows per row group of the copy for Polars; the best counts.
COPY_ROWS = (8192, 32768)
CURVE_BITS = 10


@dataclass(frozen=True)
class Domain:
    """Places of records, in the order of files of a decomposed domain, and the axes that boxes constrain."""

    name: str
    places: Callable[[numpy.random.Generator, int], numpy.ndarray]
    axes: tuple[str, ...]


def of_dumps(random: numpy.random.Generator, rows: int) -> numpy.ndarray:
    """The particles of the last step, replicated with a jitter of a tenth of a cell."""
    parts = []
    for path in sorted(max(DUMPS.glob("T.*"), key=lambda folder: int(folder.name[2:])).iterdir()):
        dump, fields = vpic.read_dump(path), vpic.HEADER.unpack_from(path.read_bytes())
        (nx, ny), (dx, dy, dz), (x0, y0, z0) = fields[12:14], fields[16:19], fields[19:22]
        cell = dump["i"].astype("f8")
        x = x0 + (cell % (nx + 2) - 1 + (dump["dx"] + 1) / 2) * dx
        y = y0 + (cell // (nx + 2) % (ny + 2) - 1 + (dump["dy"] + 1) / 2) * dy
        z = z0 + (cell // ((nx + 2) * (ny + 2)) - 1 + (dump["dz"] + 1) / 2) * dz
        parts.append(numpy.stack([x, y, z], axis=1))
    places = numpy.concatenate(parts)
    return places[numpy.arange(rows) * len(places) // rows] + random.normal(size=(rows, 3)) * [0.05, 0.01, 0.05]


def even(random: numpy.random.Generator, rows: int) -> numpy.ndarray:
    return in_slabs(random.random((rows, 3)) * 128)


def flat(random: numpy.random.Generator, rows: int) -> numpy.ndarray:
    return in_slabs(random.random((rows, 3)) * [128, 128, 1])


def clusters(random: numpy.random.Generator, rows: int) -> numpy.ndarray:
    """Sixty clusters, whose widths span three orders of magnitude."""
    centres, widths = random.random((60, 3)) * 100, 10 ** random.uniform(-2, 1, 60)
    which = random.integers(0, 60, rows)
    return in_slabs(centres[which] + random.normal(size=(rows, 3)) * widths[which, None])


def in_slabs(places: numpy.ndarray) -> numpy.ndarray:
    return places[numpy.argsort(places[:, 0] // 8, kind="stable")]


DOMAINS = (
    Domain("VPIC, one cell thick", of_dumps, ("x", "z")),
    Domain("flat", flat, ("x", "y")),
    Domain("even", even, ("x", "y", "z")),
    Domain("clusters", clusters, ("x", "y", "z")),
)


def curve(places: numpy.ndarray) -> numpy.ndarray:
    """Places along a Hilbert curve (Skilling, AIP Conf. Proc. 707, 2004)."""
    low, high = places.min(axis=0), places.max(axis=0)
    cells = ((places - low) / numpy.maximum(high - low, 1e-30) * ((1 << CURVE_BITS) - 1)).astype("u8").T.copy()
    axes = len(cells)
    bit = numpy.uint64(1 << (CURVE_BITS - 1))
    while bit > 1:
        mask = bit - numpy.uint64(1)
        for axis in range(axes):
            is_set = cells[axis] & bit != 0
            swapped = (cells[0] ^ cells[axis]) & mask
            cells[0] = numpy.where(is_set, cells[0] ^ mask, cells[0] ^ swapped)
            if axis:
                cells[axis] = numpy.where(is_set, cells[axis], cells[axis] ^ swapped)
        bit >>= numpy.uint64(1)
    for axis in range(1, axes):
        cells[axis] ^= cells[axis - 1]
    flips = numpy.zeros_like(cells[0])
    bit = numpy.uint64(1 << (CURVE_BITS - 1))
    while bit > 1:
        flips ^= numpy.where(cells[-1] & bit != 0, bit - numpy.uint64(1), numpy.uint64(0))
        bit >>= numpy.uint64(1)
    cells ^= flips
    path = numpy.zeros_like(cells[0])
    for level in range(CURVE_BITS - 1, -1, -1):
        for axis in range(axes):
            path = (path << numpy.uint64(1)) | ((cells[axis] >> numpy.uint64(level)) & numpy.uint64(1))
    return path


def draw_boxes(random: numpy.random.Generator, rows: numpy.ndarray, axes: tuple[str, ...], share: float) -> list[dict[str, tuple[float, float]]]:
    """Boxes with a share of the domain's volume, around records: where there are none, nothing is read."""
    found = []
    for centre in random.choice(rows, BOXES):
        box = {}
        for axis in axes:
            low, high = float(numpy.quantile(rows[axis], 0.001)), float(numpy.quantile(rows[axis], 0.999))
            width = (high - low) * share ** (1 / len(axes))
            begin = min(max(float(centre[axis]) - width * float(random.random()), low), high - width)
            box[axis] = (float(numpy.float32(begin)), float(numpy.float32(begin + width)))
        found.append(box)
    return found


def as_text(box: dict[str, tuple[float, float]]) -> str:
    return ",".join(f"{axis}={low!r}:{high!r}" for axis, (low, high) in box.items())


class Space:
    """The measurements of all domains."""

    def __init__(self, scratch: Path, rounds: int, quick: bool):
        self.scratch, self.rounds, self.rows = scratch, max(rounds, 3), QUICK_ROWS if quick else ROWS
        self.found: dict[str, dict] = {}

    def study(self) -> None:
        for domain in DOMAINS:
            self.found[domain.name] = self.measure(domain)

    def measure(self, domain: Domain) -> dict:
        random = numpy.random.default_rng(1)
        rows = numpy.empty(self.rows, RECORD)
        for axis, column in zip(("x", "y", "z"), domain.places(random, self.rows).T, strict=True):
            rows[axis] = column
        for name in RECORD.names[3:-1]:
            rows[name] = random.standard_normal(self.rows, "f4")
        rows["id"] = numpy.arange(self.rows)
        folder = self.scratch / domain.name.replace(" ", "-")
        raw.write_source(folder, {EPOCH: numpy.array_split(rows, RANKS)})
        found: dict = {"ingest": self.ingest(folder)}
        dataset = folder / "space-0"
        stats = json.loads(run([COMMAND, "stats", dataset, "--json"]))[0]
        found["imbalance"] = stats["load_imbalance"]
        found["amplification"] = sum(path.stat().st_size for path in dataset.rglob("*") if path.is_file()) / rows.nbytes
        copies = self.copies(folder, rows, domain.axes)
        for share in SHARES:
            found[str(share)] = self.boxes(dataset, copies, rows, draw_boxes(random, rows, domain.axes, share))
            say(f"{domain.name}, boxes of {share:.1%}: {found[str(share)]}")
        return found

    def ingest(self, folder: Path) -> dict[str, list[tuple[float, float]]]:
        """Wall and processor seconds of ingests by space and by energy, in turns."""
        costs: dict[str, list[tuple[float, float]]] = {"space": [], "energy": []}
        for number in range(self.rounds):
            for name, key in (("space", "space:x,y,z"), ("energy", "energy")):
                command = [COMMAND, "ingest", folder, "--layout", folder / "layout.toml", "--out", folder / f"{name}-{number}"]
                cost = measure([*command, "--key", key, "--ranks", RANKS, "--part-bytes", 0], output=self.scratch / "ingest.txt")
                costs[name].append((cost.wall_s, cost.cpu_s))
        return costs

    def copies(self, folder: Path, rows: numpy.ndarray, axes: tuple[str, ...]) -> dict[int, Path]:
        order = numpy.argsort(curve(numpy.stack([rows[axis] for axis in axes], axis=1).astype("f8")))
        frame = polars.DataFrame({name: rows[name][order] for name in RECORD.names})
        paths = {size: folder / f"hilbert-{size}.parquet" for size in COPY_ROWS}
        for size, path in paths.items():
            frame.write_parquet(path, compression="uncompressed", row_group_size=size)
        return paths

    def boxes(self, dataset: Path, copies: dict[int, Path], rows: numpy.ndarray, boxes: list[dict]) -> dict[str, float]:
        import turbidite

        opened = turbidite.open(dataset)

        def ours(box: dict) -> int:
            return len(opened.query(box=box, epochs=EPOCH, columns=list(RECORD.names)).to_arrow())

        def copy(path: Path) -> Callable[[dict], int]:
            def ask(box: dict) -> int:
                tests = [(polars.col(axis) >= polars.lit(low, polars.Float32)) & (polars.col(axis) < polars.lit(high, polars.Float32)) for axis, (low, high) in box.items()]
                return polars.scan_parquet(path).filter(*tests).collect().height

            return ask

        contestants = {"ours": ours} | {f"polars-{size}": copy(path) for size, path in copies.items()}
        times: dict[str, list[float]] = {name: [] for name in contestants}
        wanted = sum(self.count(rows, box) for box in boxes)
        for number in range(self.rounds + 1):
            for name, ask in contestants.items():
                began = time.perf_counter()
                found = sum(ask(box) for box in boxes)
                took = time.perf_counter() - began
                if found != wanted:
                    raise SystemExit(f"{name} found {found} rows of {wanted}")
                if number:
                    times[name].append(took / len(boxes) * 1e3)
        read, output = 0, self.scratch / "box.arrow"
        for box in boxes:
            output.unlink(missing_ok=True)
            told = run([COMMAND, "query", dataset, "--epoch", EPOCH, "--box", as_text(box), "-o", output, "--json"])
            read += json.loads(told)["metrics"]["bytes_read"]
        skipped = self.skipped(dataset, boxes)
        best = min(median(took) for name, took in times.items() if name != "ours")
        return {"wanted": wanted, "read over wanted": read / (wanted * RECORD.itemsize), "ms": median(times["ours"]), "over Polars": median(times["ours"]) / best, "skipped": skipped}

    def skipped(self, dataset: Path, boxes: list[dict]) -> float:
        """The share of rows in row groups that statistics exclude, for any engine."""
        total, touched = 0, 0
        for file in (dataset / "data" / f"epoch={EPOCH}").iterdir():
            metadata = parquet.ParquetFile(file).metadata
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                bounds = {group.column(place).path_in_schema: group.column(place).statistics for place in range(group.num_columns)}
                for box in boxes:
                    total += group.num_rows
                    touched += group.num_rows * all(bounds[axis].max >= low and bounds[axis].min < high for axis, (low, high) in box.items())
        return 1 - touched / total

    @staticmethod
    def count(rows: numpy.ndarray, box: dict[str, tuple[float, float]]) -> int:
        inside = numpy.ones(len(rows), bool)
        for axis, (low, high) in box.items():
            inside &= (rows[axis] >= numpy.float32(low)) & (rows[axis] < numpy.float32(high))
        return int(inside.sum())

    def table(self) -> list[str]:
        lines = [
            "| domain | imbalance | bytes stored / of records | ingest, MB/s (x by energy) | box | bytes read / wanted | ms (over Polars on a Hilbert-sorted copy) | rows in skipped row groups |",
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        ]
        for name, found in self.found.items():
            walls = {key: median(wall for wall, _ in costs) for key, costs in found["ingest"].items()}
            speed = f"{self.rows * RECORD.itemsize / 1e6 / walls['space']:.0f} ({walls['energy'] / walls['space']:.2f})"
            first = [name, f"{found['imbalance']:.1%}", f"{found['amplification']:.4f}", speed]
            for number, share in enumerate(SHARES):
                of_box = found[str(share)]
                cells = [f"{share:.1%}", f"{of_box['read over wanted']:.2f}", f"{of_box['ms']:.2f} ({of_box['over Polars']:.2f})", f"{of_box['skipped']:.1%}"]
                lines.append(f"| {' | '.join([*(first if number == 0 else [''] * 4), *cells])} |")
        return lines
