"""Random HDF5 files against h5py: each dataset is a column with equal values, or named as left out, or named by a refusal."""


import numpy
import pyarrow
import pyarrow.dataset
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support import hdf5_oracle as oracle
from support.command import attempt
from support.hdf5_trees import Tree, trees, write
from support.source_reader import Refused
from support.sweeps import generated

SOMETIMES = st.sampled_from([True, False, False])


@st.composite
def requests(draw) -> tuple[Tree, dict]:
    """A tree, and how it is asked for: as a whole, by a group, by some of its columns."""
    tree = draw(trees())
    groups = [group for group, named in tree.groups.items() if named and group]
    species = draw(st.sampled_from(groups)) if groups and draw(st.booleans()) else None
    return tree, {"species": species, "picks": draw(st.lists(st.integers(0, 99), max_size=3)) if draw(SOMETIMES) else None}


def chosen(found: oracle.Contents, species: str | None, picks: list[int] | None) -> list[str] | None:
    """Some of the columns, if they are asked for: those of the group, or of the only one that has any."""
    groups = [species] if species is not None else found.with_columns()
    if picks is None or len(groups) != 1:
        return None
    group = found.aliases.get(groups[0], groups[0])
    names = list(dict.fromkeys(name for one in found.groups[group] for name in one.columns))
    return list(dict.fromkeys(names[pick % len(names)] for pick in picks)) if names else None


@generated(examples=120, parts=25)
@given(drawn=requests())
def test_the_reader_agrees_with_h5py(reader, place, drawn):
    tree, request = drawn
    path = write(tree, place())
    found = oracle.contents(path)
    species = request["species"]
    columns = chosen(found, species, request["picks"]) or None
    try:
        inventory = reader.open(path, format="HDF5", species=species, columns=columns, epoch=5)
        read = reader.epoch(5)
    except Refused as refused:
        verdict = oracle.judge_refusal(found, str(refused), species, columns)
        assert verdict is None, f"{verdict}\n{refused}"
        return
    verdict = oracle.judge_reading(found, read, "\n".join(inventory["notes"]), species, columns)
    assert verdict is None, f"{verdict}\nnotes: {inventory['notes']}"


@generated(examples=6, parts=20)
@given(drawn=requests())
def test_the_command_agrees_with_h5py(place, drawn):
    """The rows of a dataset, and what the command prints."""
    tree, request = drawn
    folder = place()
    path, species = write(tree, folder), request["species"]
    found = oracle.contents(path)
    # Without a species, the root is read if it has columns.
    default = [""] if "" in found.with_columns() else found.with_columns()
    groups = default if species is None else [found.aliases.get(species, species)]
    keys = [name for group in groups for one in found.groups[group] for name, values in one.columns.items() if values.dtype.kind != "V"]
    options = [] if species is None else ["--species", species]
    done = attempt("ingest", path, "--out", folder / "ds", "--key", keys[0] if keys else "none", "--epoch", 5, *options)
    if done.returncode != 0:
        verdict = oracle.judge_refusal(found, done.stderr, species, None)
        # Columns of bytes are no keys.
        assert verdict is None or (not keys and "--key: 'none' is not a column" in done.stderr), f"{verdict}\n{done.stderr}"
        return
    table = pyarrow.dataset.dataset(folder / "ds" / "data", format="parquet").to_table()
    read = {name: values_of(table[name]) for name in table.column_names if name != "epoch"}
    verdict = oracle.judge_reading(found, read, done.stderr, species, None, oracle.in_any_order)
    assert verdict is None, f"{verdict}\n{done.stderr}"


def values_of(column: pyarrow.ChunkedArray) -> numpy.ndarray:
    if not pyarrow.types.is_fixed_size_binary(column.type):
        return column.to_numpy()
    return numpy.frombuffer(b"".join(column.to_pylist()), f"V{column.type.byte_width}")
