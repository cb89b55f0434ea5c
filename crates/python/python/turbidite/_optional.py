"""Packages that are not required: imported at their first use."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["needed"]


def needed(module: str, extra: str, purpose: str) -> Any:
    """Imports a module, or says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise ImportError(f"{purpose} needs {package}: pip install 'turbidite[{extra}]'", name=package) from None
