"""The columns of a dataset."""

from __future__ import annotations

from dataclasses import dataclass, field

from turbidite._axes import unit_text
from turbidite._tables import table

__all__ = ["Column", "Schema"]


@dataclass(frozen=True)
class Column:
    """A column: its name, its type (``f32``, ``u64``, ``fixed_bytes(16)``) and the unit, if it is known."""

    name: str
    type: str
    unit: str | None = None


@dataclass(frozen=True)
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

    def _repr_html_(self) -> str:
        rows = [
            (column.name, column.type, unit_text(column.unit) if column.unit else "", self._remarks(column.name))
            for column in self.columns
        ]
        return table(f"{len(rows)} columns", ("column", "type", "unit", ""), rows)

    def _remarks(self, name: str) -> str:
        period = [f"period {self.periods[name]}"] if name in self.periods else []
        return ", ".join((["key"] if name in self.keys else []) + period)
