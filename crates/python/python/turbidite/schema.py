"""The columns of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field

from turbidite._axes import unit_text
from turbidite._tables import abridged, clipped, table

__all__ = ["Column", "Schema"]


@dataclass(frozen=True)
class Column:
    """A column: its name, its type (``f32``, ``u64``, ``fixed_bytes(16)``) and the unit, if it is known."""

    name: str
    type: str
    unit: str | None = None


_SHOWN = 40
"""Longer tables have their first and last columns."""


@dataclass(frozen=True, repr=False)
class Schema:
    """The columns of a dataset, and the one by which records are ordered."""

    columns: tuple[Column, ...]
    key: str
    periods: dict[str, float] = field(default_factory=dict, hash=False)
    """The periods of the coordinates that are periodic, modulo which boxes are compared."""
    keys: tuple[str, ...] = ()
    """All columns of the key, the most significant first; `key` is the first one."""

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def __repr__(self) -> str:
        columns = ", ".join(f"{column.name} {column.type}" for column in self.columns)
        return clipped(f"<Schema of {len(self.columns):,} columns, key {', '.join(self.keys or (self.key,))}; {columns}>")

    def _repr_html_(self) -> str:
        rows = [
            ("…",) * 4
            if column is None
            else (column.name, column.type, unit_text(column.unit) if column.unit else "", self._remarks(column.name))
            for column in abridged(self.columns, _SHOWN)
        ]
        return table(f"{len(self.columns):,} columns", ("column", "type", "unit", ""), rows)

    def _remarks(self, name: str) -> str:
        period = [f"period {self.periods[name]}"] if name in self.periods else []
        return ", ".join((["key"] if name in self.keys else []) + period)
