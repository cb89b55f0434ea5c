"""Reads all datasets of HDF5 files by h5py, and prints their bytes. Usage: read_h5py.py FILE…"""

import sys

import h5py


def main() -> None:
    total = 0

    def visit(_, item) -> None:
        nonlocal total
        if isinstance(item, h5py.Dataset):
            total += item[()].nbytes

    for path in sys.argv[1:]:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    print(total)


if __name__ == "__main__":
    main()
