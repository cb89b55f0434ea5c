"""Headers of a program's files are compared with what is known of them: a wrong configuration and a broken file are
said, and nothing of such a file is indexed. All of it without MPI."""

import json
import struct
import sys

import numpy
import pytest

from support import vpic
from support.command import FAILED, turbidite
from support.preload import VPIC, check_rows, complaints, in_order, run, stored, written

STEPS = (500, 1000, 1500)
MODES = ["keep", "replace"]
PATTERN = VPIC.pattern
CONSTANTS = "step nx ny nz dt dx dy dz x0 y0 z0 cvac eps0 damp rank ranks species q_m".split()

# As a program: FOLDER OUT. Writes the files of a folder anew, in the order of their epochs and names.
COPY = """
import os, sys
source, out = sys.argv[1:]
paths = [os.path.join(folder, name) for folder, _, names in os.walk(source) for name in names]
for path in sorted(paths, key=lambda path: (int(path.split("T.")[1].split("/")[0]), path)):
    target = os.path.join(out, os.path.relpath(path, source))
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(path, "rb") as file, open(target, "wb") as copy:
        copy.write(file.read())
"""


def dumps() -> dict[str, bytes]:
    """The sample's files of some steps, under the names that VPIC gives them."""
    root = vpic.sample_dumps()
    names = [f"T.{step}/eparticle.{step}.{rank}" for step in STEPS for rank in range(4)]
    return {f"particle/{name}": (root / name).read_bytes() for name in names}


def configure(tmp_path, text: str, mode: str, spool, **more):
    """A configuration of one dataset: `text` may begin with settings and end with fields."""
    values = {"files": PATTERN, "out": str(tmp_path / "ds"), "key": "energy", "mode": mode, "spool": str(spool)} | more
    settings = "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())
    path = tmp_path / "c.toml"
    path.write_text(f"[[dataset]]\n{settings}{text}")
    return path


def copy(tmp_path, files: dict[str, bytes], config) -> str:
    """A program writes the files to tmp_path/out; what it said."""
    for name, content in files.items():
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "source" / name).write_bytes(content)
    (tmp_path / "out").mkdir()
    said = run([sys.executable, "-c", COPY, tmp_path / "source", tmp_path / "out"], config)
    return complaints(said)


VPIC_FORMAT = 'format = "vpic"\nderive = [' + ", ".join(f'"{text}"' for text in VPIC.derive) + "]\n"
RAW_FIELDS = "".join(
    f'[[dataset.field]]\nname = "{name}"\ntype = "{"i32" if name == "i" else "f32"}"\n' for name in vpic.PARTICLE.names
)
ENERGY = 'derive = ["energy = sqrt(1+ux*ux+uy*uy+uz*uz)-1"]\n'


@pytest.mark.parametrize("mode", MODES)
def test_vpic_by_its_name(tmp_path, spool, mode):
    files = dumps()
    assert copy(tmp_path, files, configure(tmp_path, VPIC_FORMAT, mode, spool)) == ""
    assert written(tmp_path / "out") == (files if mode == "keep" else {})
    check_rows(tmp_path / "ds", VPIC, files)


def test_a_dataset_is_the_one_that_ingest_makes(tmp_path, spool):
    """Columns, types, units and every constant of the header; `ingest` can add epochs to it."""
    derive = [f"c_{name}:f64 = header.{name}" for name in CONSTANTS] + [VPIC.derive[0]]
    text = f'format = "vpic"\nderive = {json.dumps(derive)}\n'
    files = dumps()
    first = {name: content for name, content in files.items() if "T.1500" not in name}
    assert copy(tmp_path, first, configure(tmp_path, text, "keep", spool)) == ""
    arguments = [part for one in derive for part in ("--derive", one)]
    ingest = ["ingest", vpic.sample_dumps(), "--key", "energy", *arguments]
    turbidite(*ingest, "--out", tmp_path / "other", "--epochs", "500..1500")
    descriptors = []
    for name in ("ds", "other"):
        descriptor = json.loads((tmp_path / name / "_turbidite" / "dataset.json").read_text())
        descriptors.append({key: value for key, value in descriptor.items() if key not in ("uuid", "source", "checksum")})
    assert descriptors[0] == descriptors[1] and len(descriptors[0]["columns"]) == 8 + len(derive), descriptors
    turbidite(*ingest, "--out", tmp_path / "ds", "--epochs", "1500")
    dtype = numpy.dtype([*vpic.PARTICLE.descr, *((f"c_{name}", "<f8") for name in CONSTANTS), ("energy", "<f4")])
    ours, theirs = stored(tmp_path / "ds", dtype), stored(tmp_path / "other", dtype)
    assert set(ours) == set(theirs) == set(STEPS)
    for step in STEPS:
        assert numpy.array_equal(in_order(ours[step]), in_order(theirs[step]))
        ranks = {int(rank) for rank in ours[step]["c_rank"]}
        assert ranks == {0, 1, 2, 3} and set(ours[step]["c_step"]) == {step}


def test_derived_values_out_of_range_are_counted(tmp_path, spool):
    files = dumps()
    text = f'format = "vpic"\nderive = ["{VPIC.derive[0]}", "big = w*0 + 1e39"]\n'
    said = copy(tmp_path, files, configure(tmp_path, text, "keep", spool))
    dtype = numpy.dtype([*vpic.PARTICLE.descr, ("energy", "<f4"), ("big", "<f4")])
    rows = numpy.concatenate(list(stored(tmp_path / "ds", dtype).values()))
    count = f"{len(rows)} values too large for f32 (stored as infinity)"
    assert said == f"turbidite: column 'big': {count}; derive it as 'big:f64=…'\n", said
    assert len(rows) > 0 and numpy.isposinf(rows["big"]).all()


def patched(content: bytes, offset: int, value: bytes) -> bytes:
    return content[:offset] + value + content[offset + len(value) :]


BROKEN = {
    "a record less": (lambda content: content[:-32], "particles", None),
    "a record more": (lambda content: content + bytes(32), "particles", None),
    "cut within a record": (lambda content: content[:-5], "particles", None),
    "cut within the header": (lambda content: content[:100], "has 100 bytes, less than the header of 115", None),
    "another magic": (lambda content: patched(content, 7, b"\xef\xbe\xad\x00"), "0xdeadbeef", None),
    "big-endian": (lambda content: patched(content, 5, b"\xca\xfe\xde\xad\xbe\xef"), "big-endian machine", None),
    "a dump of fields": (lambda content: patched(content, 27, struct.pack("<i", 1)), "the dump type 3 of particles", None),
    "another version": (lambda content: patched(content, 23, struct.pack("<i", 1)), "the version 0", None),
    "longer particles": (lambda content: patched(content, 103, struct.pack("<i", 48)), "has particles of 48 bytes", None),
    "text": (lambda content: b"a text, and nothing of VPIC's " * 100, "not a VPIC particle dump", None),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", BROKEN)
def test_a_file_that_is_no_dump(tmp_path, spool, kind, mode):
    """Its epoch is left out and its files stay; those before and after are indexed."""
    files = dumps()
    name = "particle/T.1000/eparticle.1000.2"
    corrupt, what, _ = BROKEN[kind]
    files[name] = corrupt(files[name])
    said = copy(tmp_path, files, configure(tmp_path, VPIC_FORMAT, mode, spool))
    if what == "particles":
        stated = vpic.HEADER.unpack_from(files[name])[-1]
        what = f"states {stated} records, but its {len(files[name])} bytes hold "
    assert said.count("\n") == 1 and f"{tmp_path}/out/{name}: " in said and what in said, said
    assert "the files of epoch 1000 stay as the program wrote them" in said
    stay = {path: content for path, content in files.items() if mode == "keep" or "T.1000" in path}
    assert written(tmp_path / "out") == stay
    check_rows(tmp_path / "ds", VPIC, {path: content for path, content in files.items() if "T.1000" not in path})


RAW = {
    "what it is": ({"header_bytes": 115, "records": "i32@111", "magic": ["08 02 04 04 08 FE ca@0", "efbeadde@7"]}, None),
    "a header that is too long": (
        {"header_bytes": 147, "records": "i32@111"},
        "records, but its {bytes} bytes hold {fewer}, with a header of 147 bytes and records of 32 (records = "
        '"i32@111"); header_bytes or record_bytes is wrong, or the file is incomplete',
    ),
    "records that are too long": ({"header_bytes": 115, "record_bytes": 64, "records": "u32@111"}, "hold {half}"),
    "another count": ({"header_bytes": 115, "records": "i32@107"}, "states 1 records, but its {bytes} bytes hold {count}"),
    "other bytes": (
        {"header_bytes": 115, "magic": "ca fe@5"},
        'has the bytes fe ca at 5, expected magic = "ca fe@5"; the file has another format or byte order',
    ),
}


@pytest.mark.parametrize("kind", RAW)
def test_headers_of_raw_records(tmp_path, spool, kind):
    files = {name: content for name, content in dumps().items() if "T.500" in name}
    settings, what = RAW[kind]
    said = copy(tmp_path, files, configure(tmp_path, ENERGY + RAW_FIELDS, "keep", spool, **settings))
    assert written(tmp_path / "out") == files
    if what is None:
        assert said == ""
        assert len(stored(tmp_path / "ds", numpy.dtype([*vpic.PARTICLE.descr, ("energy", "<f4")]))[500]) == sum(
            vpic.HEADER.unpack_from(content)[-1] for content in files.values()
        )
        return
    content = files["particle/T.500/eparticle.500.0"]
    count = vpic.HEADER.unpack_from(content)[-1]
    values = {"bytes": len(content), "count": count, "fewer": count - 1, "half": count // 2}
    assert what.format(**values) in said and "the files of epoch 500 stay" in said, said
    assert not (tmp_path / "ds" / "data" / "epoch=500").exists()


@pytest.mark.parametrize("kind", [kind for kind in RAW])
def test_the_same_in_a_layout_file(tmp_path, kind):
    """`ingest --layout` compares, too, and says the same."""
    settings, what = RAW[kind]
    layout = tmp_path / "layout.toml"
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    layout.write_text('path = "T.{epoch}/eparticle.{epoch}.{rank}"\n' + "\n".join(lines) + "\n" + RAW_FIELDS.replace("dataset.", ""))
    arguments = ["ingest", vpic.sample_dumps(), "--layout", layout, "--out", tmp_path / "ds", "--key", "ux"]
    if what is None:
        turbidite(*arguments)
        return
    done = turbidite(*arguments, expect=FAILED)
    content = (vpic.sample_dumps() / "T.500" / "eparticle.500.0").read_bytes()
    count = vpic.HEADER.unpack_from(content)[-1]
    values = {"bytes": len(content), "count": count, "fewer": count - 1, "half": count // 2}
    assert "T.500/eparticle.500.0: " in done.stderr and what.format(**values) in done.stderr, done.stderr
    assert not (tmp_path / "ds" / "data").exists()


@pytest.mark.parametrize(
    "settings, what",
    [
        ({"format": "vpic", "header_bytes": 83}, 'format = "vpic" defines header, fields and constants of the files: omit header_bytes'),
        ({"header_bytes": 83, "records": "i32@111"}, 'records = "i32@111" ends beyond the header of 83 bytes'),
        ({"header_bytes": 115, "magic": "8,2,4,4,8@0"}, 'magic = "8,2,4,4,8@0" is not BYTES@OFFSET'),
    ],
)
def test_settings_that_cannot_be(tmp_path, spool, settings, what):
    files = {name: content for name, content in dumps().items() if "T.500" in name}
    fields = "" if "format" in settings else RAW_FIELDS
    said = copy(tmp_path, files, configure(tmp_path, ENERGY + fields, "keep", spool, **settings))
    assert str(tmp_path / "c.toml") in said and what in said, said
    assert written(tmp_path / "out") == files and not (tmp_path / "ds").exists()


def test_files_that_are_one_record(tmp_path, spool):
    """Each is compared."""
    row = struct.pack("<f", 1.5)
    good = {f"T.1/{number}": b"head" + row for number in range(3)} | {"T.2/3": b"head" + row, "T.2/4": b"hand" + row}
    fields = '[[dataset.field]]\nname = "a"\ntype = "f32"\n'
    settings = {"files": "T.{epoch}/{id}", "key": "a", "header_bytes": 4, "magic": "68 65 61 64@0"}
    said = copy(tmp_path, good, configure(tmp_path, fields, "keep", spool, **settings))
    assert f"{tmp_path}/out/T.2/4: has the bytes 68 61 6e 64 at 0" in said, said
    assert {epoch: len(rows) for epoch, rows in stored(tmp_path / "ds", numpy.dtype([("a", "<f4"), ("id", "<u8")])).items()} == {1: 3}
    assert written(tmp_path / "out") == good
