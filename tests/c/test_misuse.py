"""Mistakes of programs in C and C++: each is told where users look, and what is on disk is right or not there."""

import os
import subprocess
from pathlib import Path

import numpy
import pytest

import turbidite as package
from support.command import AMPLE_S, ROOT, turbidite
from support.libraries import STRICT, compile_c, linked, prefix
from support.mpi import Mpi, run

HERE = ROOT / "tests" / "c"
COUNT = 1000

# What a view has wrong, and what the first append says of it.
VIEWS = {
    "doubles": "column 'energy': the values are f64, but the column is f32",
    "signed": "column 'id': the values are i64, but the column is u64",
    "swapped": "column 'energy': the values are u64, but the column is f32",
    "untyped": "column 'energy': the view has no type; create it with turbidite_values",
    "decayed": "column 'name': the values are i8, but the column is fixed_bytes(6); give the address of the array",
    "nowhere": "column 'id': the address of the values is NULL",
    "narrow": "column 'id': the stride of 4 bytes is less than the 8 bytes of a value",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    return compile_c(HERE / "misuse.c", tmp_path_factory.mktemp("misuse") / "misuse")


def epochs_of(dataset: Path) -> list[int]:
    return list(package.open(dataset).epochs)


@pytest.mark.parametrize("wrong", VIEWS)
def test_a_wrong_view_fails_its_epoch(program, wrong, tmp_path):
    """The first failed append is printed, and each epoch's end; nothing is stored of either epoch."""
    done = run(program, wrong, tmp_path / "ds")
    first, *ends = done.stderr.splitlines()
    assert first.startswith(f"turbidite_append: {tmp_path / 'ds'}: epoch 1, rank 0: {VIEWS[wrong]}"), done.stderr
    assert len(ends) == 2 and done.stdout == "done\n", done.stderr
    for epoch, end in zip((1, 2), ends):
        assert end.startswith(f"turbidite_end_epoch: {tmp_path / 'ds'}: epoch {epoch} failed on rank 0: {VIEWS[wrong]}")
    turbidite("verify", tmp_path / "ds")
    assert epochs_of(tmp_path / "ds") == []


def test_other_records_that_do_not_fit(program, tmp_path):
    said = run(program, "fewer", tmp_path / "fewer").stderr
    assert "/fewer: epoch 1, rank 0: 2 views were given, but the schema has 3 columns\n" in said, said
    said = run(program, "packed", tmp_path / "packed").stderr
    assert "/packed: epoch 1, rank 0: row_bytes is 24, but the columns of a record have 18; append structs with gaps by" in said
    assert epochs_of(tmp_path / "packed") == []


def test_a_program_that_runs_again(program, tmp_path):
    """Its epochs exist. Each is refused, aloud, and the first run's rows stay."""
    assert run(program, "right", tmp_path / "ds").stderr == ""
    done = run(program, "right", tmp_path / "ds")
    refused = done.stderr.splitlines()
    assert len(refused) == 2 and all(line.startswith("turbidite_begin_epoch: ") for line in refused), done.stderr
    assert all(
        "already exists" in line and "set if_exists of turbidite_options to TURBIDITE_IF_EXISTS_REPLACE" in line
        for line in refused
    )
    assert package.open(tmp_path / "ds").query().count() == 2 * COUNT


def test_a_path_that_cannot_be_made(program, tmp_path):
    """Only opening it is told of, since all else follows from it."""
    (tmp_path / "file").write_text("a file")
    done = run(program, "right", tmp_path / "file" / "ds")
    assert done.stderr.startswith("turbidite_open: ") and str(tmp_path / "file" / "ds") in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_printing_is_turned_off(program, tmp_path):
    run(program, "right", tmp_path / "ds")
    assert run(program, "silent", tmp_path / "ds").stderr == ""


def test_an_open_epoch_is_told_of_when_the_dataset_is_closed(program, tmp_path):
    done = run(program, "open", tmp_path / "ds")
    assert (
        done.stderr == f"turbidite_close: {tmp_path / 'ds'}: epoch 9, rank 0: it has not ended, and its records are discarded\n"
    )
    assert epochs_of(tmp_path / "ds") == [1, 2]


def test_an_epoch_that_begins_inside_another(program, tmp_path):
    """It is refused, and the open one goes on."""
    done = run(program, "inside", tmp_path / "ds")
    why = "epoch 1, rank 0: it has not ended, so that epoch 2 cannot begin; call turbidite_end_epoch first"
    assert done.stderr == f"turbidite_begin_epoch: {tmp_path / 'ds'}: {why}\n"
    assert epochs_of(tmp_path / "ds") == [1]


def test_records_before_an_epoch(program, tmp_path):
    """The epoch that lacks them fails, and the next is whole."""
    done = run(program, "before", tmp_path / "ds")
    first, end = done.stderr.splitlines()
    assert first.endswith("/ds: turbidite_append: is called outside an epoch; call turbidite_begin_epoch first")
    assert end.endswith("/ds: epoch 1 failed on rank 0: records were appended before turbidite_begin_epoch")
    assert epochs_of(tmp_path / "ds") == [2] and package.open(tmp_path / "ds").query().count() == COUNT


def test_one_value_for_all_records(program, tmp_path):
    assert run(program, "constant", tmp_path / "ds").stderr == ""
    rows = package.open(tmp_path / "ds").query().to_numpy()
    assert set(rows["energy"].tolist()) == {-1.0} and sorted(rows["id"].tolist()) == list(range(COUNT))


def test_the_lock_of_a_running_writer(program, tmp_path):
    """No option breaks it, and the message does not propose one."""
    with package.Writer(tmp_path / "ds", {"energy": "f4"}, key="energy") as writer:
        with writer.epoch(1):
            writer.append({"energy": numpy.arange(10, dtype="f4")})
            for wrong in ("right", "breaks"):
                said = run(program, wrong, tmp_path / "ds").stderr
                assert f"is running: pid {os.getpid()} on " in said and len(said.splitlines()) == 1, said
                assert "break" not in said
    assert package.open(tmp_path / "ds").query().count() == 10


def test_a_limit_on_the_size_of_files(program, tmp_path):
    """The program is told, and not ended by a signal; without the limit, it writes the same epochs."""
    limited = ["bash", "-c", 'ulimit -f 16; exec "$@"', "limited", program, "right", tmp_path / "ds"]
    done = run(*limited)
    assert done.stdout == "done\n"
    ends = [line for line in done.stderr.splitlines() if line.startswith("turbidite_end_epoch: ")]
    assert len(ends) == 2 and all("16384" in line or "16 KiB" in line for line in ends), done.stderr
    assert epochs_of(tmp_path / "ds") == []
    assert run(program, "right", tmp_path / "ds").stderr == "" and epochs_of(tmp_path / "ds") == [1, 2]


def refused_by(compiler: str, source: Path, *options) -> str:
    command = [compiler, *options, f"-I{prefix() / 'include'}", "-c", source, "-o", source.with_suffix(".o")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.returncode != 0
    return done.stderr


@pytest.mark.parametrize("pointer", ["&p->position", "&p->position_ld", "p", "&p->next", "&p->z"])
def test_the_compiler_refuses_other_types(pointer, tmp_path):
    """Arrays of numbers, long doubles, structs, pointers and complex numbers are no columns."""
    source = tmp_path / "types.c"
    source.write_text(
        "#include <turbidite.h>\n"
        "struct s { float position[3]; long double position_ld; struct s *next; float _Complex z; };\n"
        f"turbidite_view view(struct s *p) {{ return turbidite_values({pointer}, sizeof *p); }}\n"
    )
    assert "_Generic" in refused_by("cc", source, *STRICT)
    source = tmp_path / "types.cpp"
    source.write_text(
        source.with_suffix(".c")
        .read_text()
        .replace("turbidite.h", "turbidite.hpp")
        .replace("turbidite_values", "turbidite::values")
    )
    assert "a column has numbers, or arrays of bytes" in refused_by("c++", source, "-std=c++11")


def test_ignored_statuses_are_warned_of(tmp_path):
    source = tmp_path / "ignores.c"
    source.write_text("#include <turbidite.h>\nvoid f(turbidite_dataset *d) { turbidite_end_epoch(d, NULL); }\n")
    assert "unused-result" in refused_by("cc", source, *STRICT)
    run("cc", *STRICT, "-DTURBIDITE_UNCHECKED", f"-I{prefix() / 'include'}", "-c", source, "-o", tmp_path / "ignores.o")


def test_c99_is_told_what_it_lacks(tmp_path):
    source = tmp_path / "old.c"
    source.write_text("#include <turbidite.h>\nturbidite_view f(float *p) { return turbidite_values(p, 4); }\n")
    assert "turbidite_values_needs_C11" in refused_by("cc", source, "-std=c99")


def test_types_of_c(tmp_path):
    """Each type of C, with and without const, is the column of its size and sign."""
    expected = {
        "float": 1, "double": 2, "int": 3, "long": 4, "long long": 4, "unsigned": 5, "unsigned long": 6, "unsigned long long": 6,
        "signed char": 7, "short": 8, "unsigned char": 9, "_Bool": 9, "unsigned short": 10, "int64_t": 4, "uint64_t": 6, "uint32_t": 5,
    }  # fmt: skip
    source = tmp_path / "types.c"
    names = [f"{qualifier}{name}" for name in expected for qualifier in ("", "const ")]
    lines = [f"    {{ static {name} v; print(turbidite_values(&v, sizeof v)); }}" for name in names]
    arrays = [
        f"    {{ static {name} v[7]; print(turbidite_values(&v, sizeof v)); }}" for name in ("char", "const unsigned char")
    ]
    source.write_text(
        '#include <stdio.h>\n#include <turbidite.h>\n'
        'static void print(turbidite_view view) { printf("%d %u\\n", (int)view.type, (unsigned)view.width); }\n'
        "int main(void) {\n" + "\n".join(lines + arrays) + "\n}\n"
    )  # fmt: skip
    found = run(compile_c(source, tmp_path / "types")).stdout.splitlines()
    assert found == [f"{number} 0" for number in expected.values() for _ in range(2)] + ["11 7"] * 2


def test_a_program_of_abi_version_1_is_refused_by_name(tmp_path):
    program = compile_c(HERE / "abi_1_program.c", tmp_path / "program")
    done = run(program, tmp_path / "ds")
    assert done.stdout == "2 2 2 1\n"
    why = "turbidite.h: this program was compiled with ABI version 1, and this library has version 2: compile it again"
    calls = ("turbidite_open", "turbidite_open_indexed", "turbidite_reader_open")
    told = [f"{call}: {why}" for call in calls]
    assert [line for line in done.stderr.splitlines() if "ABI" in line] == told, done.stderr
    assert not (tmp_path / "ds").exists()


@pytest.mark.parametrize("standard", ["c++11", "c++20"])
def test_cpp(standard, tmp_path):
    program = tmp_path / "values"
    strict = (f"-std={standard}", "-Wall", "-Wextra", "-pedantic", "-Werror")
    run("c++", *strict, f"-I{prefix() / 'include'}", "-o", program, HERE / "values.cpp", *linked("turbidite"))
    done = run(program, tmp_path / "ds")
    refused, ended = done.stdout.splitlines()
    why = "epoch 2, rank 0: column 'energy': the values are f64, but the column is f32"
    assert refused == f"2 {tmp_path / 'ds'}: {why}" and ended == "1"
    rows = package.open(tmp_path / "ds").query().to_numpy()
    assert epochs_of(tmp_path / "ds") == [1] and len(rows["id"]) == COUNT
    assert (rows["x"] == 0.5 * rows["energy"]).all() and (rows["id"] == rows["energy"].astype("i8") - 500).all()
    assert set(rows["species"].tolist()) == {3} and set(rows["weight"].tolist()) == {2.0}
    assert {bytes(name) for name in rows["name"]} == {b"abcde"} and {bytes(colour) for colour in rows["colour"]} == {b"\1\2\3"}


@pytest.fixture(scope="module")
def parallel(mpi: Mpi) -> Path:
    return mpi.compile(
        "misuse", "-DWITH_MPI", f"-I{prefix() / 'include'}", HERE / "misuse.c", *linked("turbidite_mpi", "turbidite")
    )


def count_exactly(said: str, expected: dict[str, int]) -> None:
    """mpiexec may forward the end of a rank's line after another rank's line: texts are counted, and nothing else is left."""
    for text, count in expected.items():
        assert said.count(text) == count, (text, said)
        said = said.replace(text, "")
    assert said.strip() == "", said


def test_one_rank_of_several(mpi, parallel, tmp_path):
    """The rank that makes the mistake prints it; what all ranks are told, rank 0 prints."""
    done = mpi.start(3, parallel, "doubles", tmp_path / "ds")
    dataset, why = tmp_path / "ds", VIEWS["doubles"]
    ends = {f"turbidite_end_epoch: {dataset}: epoch {epoch} failed on rank 1: {why}": 1 for epoch in (1, 2)}
    count_exactly(done.stderr, {f"turbidite_append: {dataset}: epoch 1, rank 1: {why}": 1} | ends)
    assert done.stdout.count("done") == 3 and epochs_of(dataset) == []


def test_ranks_that_run_again(mpi, parallel, tmp_path):
    mpi.start(3, parallel, "right", tmp_path / "ds")
    done = mpi.start(3, parallel, "right", tmp_path / "ds")
    assert done.stderr.count("turbidite_begin_epoch: ") == done.stderr.count("already exists") == 2, done.stderr
    assert package.open(tmp_path / "ds").query().count() == 6 * COUNT


def test_no_transport(mpi, parallel, tmp_path):
    """One rank writes, the others are told what they lack."""
    done = mpi.start(3, parallel, "alone", tmp_path / "ds")
    for text in ("turbidite_open: ", "open it with a transport between them"):
        assert done.stderr.count(text) == 2, done.stderr


def test_a_transport_of_two_datasets(mpi, parallel, tmp_path):
    done = mpi.start(3, parallel, "shared", tmp_path / "ds")
    why = "turbidite_open: transport: is used by another open dataset, which would receive its messages; open a transport for each"
    count_exactly(done.stderr, {why: 3})
    assert epochs_of(tmp_path / "ds") == [1, 2]


def test_a_transport_before_mpi(mpi, parallel, tmp_path):
    """The message of the MPI part is the last error of the library, too."""
    done = mpi.start(1, parallel, "early", tmp_path / "ds")
    why = "MPI is not initialised: call MPI_Init before turbidite_mpi_open"
    assert done.stderr.strip() == f"turbidite: {why}" and done.stdout == f"last error: {why}\n"
