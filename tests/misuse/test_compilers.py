"""Mistakes that compilers find, types that they take, and programs that were compiled long ago."""

import subprocess
from pathlib import Path

import pytest
import turbidite as package
from support.command import AMPLE_S, ROOT
from support.fortran import STRICT as STRICT_FORTRAN
from support.libraries import STRICT, compile_c, linked, prefix
from support.mpi import run
from support.tools import require

HERE = ROOT / "tests" / "misuse"
COUNT = 1000


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


def test_fortran_refuses_other_types(tmp_path):
    require("gfortran")
    types = ["complex", "logical", "type(turbidite_column)", "real, dimension(2, 2)"]
    source = tmp_path / "types.f90"
    lines = [f"block; {type_}, target :: v; view = turbidite_values(v); end block" for type_ in types]
    source.write_text("\n".join(["program types", "use turbidite", "type(turbidite_view) :: view", *lines, "end program"]))
    module = prefix() / "include" / "turbidite.f90"
    command = ["gfortran", *STRICT_FORTRAN, "-fsyntax-only", f"-J{tmp_path}", module, source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=AMPLE_S)
    assert done.returncode != 0
    assert done.stderr.count("no specific function for the generic") == len(types), done.stderr


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
    assert package.open(tmp_path / "ds").epochs == [1] and len(rows["id"]) == COUNT
    assert (rows["x"] == 0.5 * rows["energy"]).all() and (rows["id"] == rows["energy"].astype("i8") - 500).all()
    assert set(rows["species"].tolist()) == {3} and set(rows["weight"].tolist()) == {2.0}
    assert {bytes(name) for name in rows["name"]} == {b"abcde"} and {bytes(colour) for colour in rows["colour"]} == {b"\1\2\3"}
