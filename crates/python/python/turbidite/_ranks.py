"""One rank of a parallel program: finds the MPI that mpi4py uses, and writes over it.

The transport library is not linked to an MPI. It is loaded after the MPI of mpi4py has been made visible to it, so that no
second MPI comes into the process. Nothing here is imported unless a Writer gets a communicator.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from turbidite import _core
from turbidite._checks import text
from turbidite.errors import OperationError, UsageError
from turbidite.mpi import _NAMES, _built_for, _folders, _library_name

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")

_forked = False


def _note_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_note_fork)


class _DlInfo(ctypes.Structure):
    """``Dl_info`` of the C library: where an address comes from."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _address(library: ctypes.CDLL, name: str) -> int | None:
    """Returns the address of a function or variable that a library or its dependencies define."""
    try:
        return ctypes.addressof(ctypes.c_char.in_dll(library, name))
    except ValueError:
        return None


class _LoadedMpi:
    """The MPI that mpi4py has loaded into this process."""

    def __init__(self, mpi: Any) -> None:
        self.version: str = " ".join(mpi.Get_library_version().partition("\n")[0].split())
        try:
            # Lookups in the module find what it calls, whatever else the process has loaded.
            self._module = ctypes.CDLL(mpi.__file__, os.RTLD_NOW | os.RTLD_NOLOAD)
        except OSError as error:
            raise OperationError(f"mpi4py's module {mpi.__file__} cannot be looked into: {error}") from None
        self._rank_function = _address(self._module, "PMPI_Comm_rank")
        self.file = self._file()
        self.family = self._family()

    def _file(self) -> str:
        """Returns the file that has MPI's functions."""
        info, dladdr = _DlInfo(), ctypes.CDLL(None).dladdr
        dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(_DlInfo))
        found = self._rank_function is not None and dladdr(self._rank_function, ctypes.byref(info))
        return os.fsdecode(info.file) if found and info.file else ""

    def _family(self) -> str:
        """Returns the family of the MPI, by the names that all libraries of an ABI define (mpi/bindings.c)."""
        if Path(self.file).name.startswith("libmpi_abi.") or self._abi_major() >= 0:
            return "standard"
        if _address(self._module, "ompi_mpi_comm_world") is not None:
            return "openmpi"
        return "mpich" if _address(self._module, "MPIR_Dup_fn") is not None else "unknown"

    def _abi_major(self) -> int:
        """Returns the major version of the standard ABI, or -1 if the calls of this MPI have an ABI of its own."""
        if _address(self._module, "PMPI_Abi_get_version") is None:
            return -1
        major, minor = ctypes.c_int(-1), ctypes.c_int(-1)
        failed = self._module.PMPI_Abi_get_version(ctypes.byref(major), ctypes.byref(minor))
        return -1 if failed else major.value

    def show(self) -> None:
        """Makes MPI's functions visible to libraries that are loaded later. Loads nothing.

        mpi4py loads MPI for itself alone. An MPI within the program itself is visible already.
        """
        with suppress(OSError):
            ctypes.CDLL(self.file or None, os.RTLD_NOW | os.RTLD_NOLOAD | os.RTLD_GLOBAL)
        visible = _address(ctypes.CDLL(None), "PMPI_Comm_rank")
        if visible is not None and visible != self._rank_function:
            raise OperationError(
                f"this process has a second MPI beside {self.file}, which mpi4py uses: start it without the other one"
            )


class Transport:
    """The library that fits an MPI: opens and closes transports of the core over communicators."""

    def __init__(self, mpi: Any) -> None:
        loaded = _LoadedMpi(mpi)
        path = _library_of(loaded)
        loaded.show()
        try:
            self._library = ctypes.CDLL(str(path), os.RTLD_NOW | os.RTLD_LOCAL)
            family = _built_for(self._library)
        except (OSError, ValueError) as error:
            raise _unfit(path, loaded, str(error)) from None
        if family != loaded.family:
            raise _unfit(path, loaded, f"it was built for {_NAMES[family]}")
        self._library.turbidite_mpi_open_fortran.argtypes = (ctypes.c_int, ctypes.POINTER(ctypes.c_void_p))
        self._library.turbidite_mpi_close.argtypes = (ctypes.c_void_p,)
        self._library.turbidite_mpi_last_error.restype = ctypes.c_char_p

    def open(self, comm: MPI.Intracomm) -> int:
        """Opens a transport between the ranks of a communicator. Collective. Returns its address."""
        address = ctypes.c_void_p()
        # The Fortran handle is an int for every MPI.
        self._check("opened", self._library.turbidite_mpi_open_fortran(comm.py2f(), ctypes.byref(address)))
        return address.value or 0

    def close(self, address: int) -> None:
        """Closes a transport. Collective, unless the ranks have lost their connection."""
        self._check("closed", self._library.turbidite_mpi_close(address))

    def _check(self, what: str, status: int) -> None:
        if status != 0:
            why = self._library.turbidite_mpi_last_error().decode(errors="replace")
            raise OperationError(f"the connection between the ranks could not be {what}: {why}")


def _unfit(path: Path, loaded: _LoadedMpi, why: str) -> OperationError:
    """Returns the exception of a library that cannot be used with an MPI."""
    return OperationError(
        f"{path} does not fit {loaded.version}, which mpi4py uses: {why}; 'python -m turbidite.mpi build' builds one that does "
        "with the mpicc of your MPI"
    )


def _library_of(loaded: _LoadedMpi) -> Path:
    """Returns the path of the library for an MPI."""
    name = _library_name(loaded.family)
    for folder in _folders():
        if (folder / name).exists():
            return folder / name
    found = sorted({path.stem.partition("-")[2] for folder in _folders() for path in folder.glob(_library_name("*"))})
    have = "; ".join(_NAMES.get(family, family) for family in found) or "none"
    raise OperationError(
        f"mpi4py uses {loaded.version} ({loaded.file or 'in the program'}), of the family '{loaded.family}': "
        f"{_NAMES[loaded.family]}. There is no library of Turbidite for it; there are libraries for: {have}. "
        "'python -m turbidite.mpi build' builds one with the mpicc of your MPI"
    )


def _mpi_of(comm: object) -> Any:
    """Returns mpi4py's module, if `comm` is one of its communicators and MPI can be used on this thread."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(comm, mpi.Comm):
        raise UsageError(f"comm is a communicator of mpi4py, such as MPI.COMM_WORLD, not {type(comm).__name__}")
    if _forked:
        raise UsageError("comm: a forked process cannot use MPI: start processes by 'spawn', or by mpiexec")
    _check_alive(mpi, "a Writer with comm")
    if mpi.Query_thread() < mpi.THREAD_SERIALIZED and not mpi.Is_thread_main():
        raise UsageError("comm: MPI's thread level allows calls only on the thread that has initialised it")
    if comm == mpi.COMM_NULL or comm.Is_inter():
        raise UsageError("comm is an intracommunicator: neither MPI.COMM_NULL nor one between two groups")
    return mpi


def _check_alive(mpi: Any, what: str) -> None:
    if not mpi.Is_initialized():
        raise UsageError(f"{what} needs MPI: call MPI.Init() before")
    if mpi.Is_finalized():
        raise UsageError(f"{what} cannot be used after MPI.Finalize(): close writers before")


def _agree(mpi: Any, comm: MPI.Intracomm, prepare: Callable[[], T]) -> T:
    """Calls `prepare` on all ranks. An exception on one of them is one on all: none may wait for it forever."""
    made: list[T] = []
    own: Exception | None = None
    try:
        made.append(prepare())
    except Exception as error:  # noqa: BLE001
        own = error
    failed: int = comm.allreduce(comm.size if own is None else comm.rank, op=mpi.MIN)
    if failed == comm.size:
        return made[0]
    cause: str = comm.bcast(str(own), root=failed)
    if own is not None:
        raise own
    raise OperationError(f"rank {failed} could not open the writer: {cause}")


class RankWriter:
    """A dataset that all ranks of a communicator write. What `turbidite.Writer` needs of it, as of `_core.Writer`."""

    def __init__(
        self,
        comm: MPI.Intracomm,
        path: str,
        schema: Callable[[], dict[str, Any]],
        key: str,
        if_exists: str,
        units: Callable[[], dict[str, str]],
        derive: Callable[[], list[str]],
        indexes: Callable[[], list[str]],
        levels: Callable[[], tuple[int, str | None]],
        periods: Callable[[], str | None],
        stall_limit: float | None,
    ) -> None:
        self._mpi = _mpi_of(comm)
        self._comm = comm
        # The thread that may call MPI, or None if any may.
        self._thread = threading.get_ident() if self._mpi.Query_thread() < self._mpi.THREAD_SERIALIZED else None
        self._in_epoch = False

        def prepare() -> tuple[
            Transport, dict[str, Any], dict[str, str], list[str], list[str], tuple[int, str | None], str | None, float
        ]:
            text("key", key, "energy")
            text("if_exists", if_exists, "error")
            stated = schema(), units(), derive(), indexes(), levels(), periods()
            return Transport(self._mpi), *stated, _limit(stall_limit)

        self._transport, columns, stated, derived, indexed, detail, domain, limit = _agree(self._mpi, comm, prepare)
        most: int = comm.allreduce(len(indexed), op=self._mpi.MAX)
        if most != comm.allreduce(len(indexed), op=self._mpi.MIN):
            raise UsageError(f"indexes: the ranks state different ones; here {indexed}")
        # One for the rows, and one for each index: two of them on one connection would receive each other's messages. The
        # ranks may state different indexes until the core compares them, so bitmap indexes, which send nothing, have one too.
        self._addresses: list[int] = []
        try:
            self._addresses.extend(self._transport.open(comm) for _ in range(1 + most))
            self._core = _core.RankWriter(
                self._addresses, path, columns, key, if_exists, stated, derived, indexed, *detail, domain, limit
            )
        except Exception:
            # All ranks are here, since opening fails on all or none. The reason is the exception to raise.
            with suppress(OperationError):
                self._close_transports()
            raise

    def _check(self) -> None:
        """Raises before a call that MPI would not survive."""
        _check_alive(self._mpi, "the writer")
        if self._thread is not None and self._thread != threading.get_ident():
            raise UsageError("MPI's thread level allows calls only on the thread that has opened the writer")

    def begin_epoch(self, epoch: int) -> bool:
        """Begins an epoch on all ranks. Returns whether it was begun."""
        self._check()
        begun = self._core.begin_epoch(epoch)
        self._in_epoch = begun or self._in_epoch
        return begun

    def append(self, rows: Any, rank: int | None) -> int:
        """Appends rows of this rank."""
        self._check()
        if rank is not None:
            raise UsageError(f"rank={rank}: with comm, each process appends its own rows as its own rank")
        return self._core.append(rows)

    def attribute(self, name: str, value: float, unit: str | None) -> None:
        """Sets an attribute of the epoch. Those of rank 0 are kept."""
        self._core.attribute(name, value, unit)

    def finish_appends(self) -> None:
        """Waits for the appends of this rank's other threads."""
        self._core.finish_appends()

    def end_epoch(self) -> str:
        """Ends the epoch on all ranks. Returns its metrics as JSON."""
        self._check()
        self._in_epoch = False
        try:
            return self._core.end_epoch()
        except Exception:
            self._settle_failed(aborted=False)
            raise

    def abort_epoch(self, cause: str) -> None:
        """Ends the epoch, which fails on all ranks, because of an exception on this one."""
        self._check()
        self._core.refuse_epoch(cause)
        self._in_epoch = False
        try:
            self._core.end_epoch()
        except OperationError:
            # Also after a lost connection; then nothing has failed on all ranks.
            if not self._core.has_failed():
                raise
        self._settle_failed(aborted=True)

    def _settle_failed(self, *, aborted: bool) -> None:
        """Removes the parts of a failed epoch if a rank has aborted it. Otherwise they stay for salvage. Collective."""
        if self._core.has_failed():
            self._core.settle_failed(bool(self._comm.allreduce(aborted, op=self._mpi.LOR)))

    def close(self) -> None:
        """Closes the dataset on all ranks."""
        if not self._addresses or _forked:
            return
        if self._in_epoch:
            self.abandon()
            raise UsageError("the writer was closed inside an epoch, which is lost: the other ranks cannot go on")
        try:
            self._check()
        except UsageError:
            self.abandon()
            raise
        try:
            self._core.close()
        finally:
            self._close_transports()

    def _close_transports(self) -> None:
        addresses, self._addresses = self._addresses, []
        for address in addresses:
            self._transport.close(address)

    def abandon(self) -> None:
        """Closes the dataset on this rank alone. MPI keeps the connection until it ends."""
        self._addresses = []
        if not _forked:
            self._core.abandon()


def _limit(stall_limit: float | None) -> float:
    """Returns the limit in seconds, infinite for none."""
    limit = math.inf if stall_limit is None else float(stall_limit)
    if not limit > 0:
        raise UsageError(f"stall_limit is a number of seconds above 0, or None, not {stall_limit!r}")
    return limit
