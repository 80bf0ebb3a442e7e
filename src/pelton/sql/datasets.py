"""``pyarrow.dataset``, loaded without pandas.

Arrow asks whether a value is one of pandas' when it loads its datasets, and loads pandas for that if it is
installed, which takes longer than everything else that a query loads. Here it hears that there is none, and
asks again when it needs it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType


class _NoPandas:
    """A finder of modules for as long as pandas is not to be found."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Refuse pandas; others are not found here."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def load() -> ModuleType:
    """Import ``pyarrow.dataset``."""
    asks = getattr(pa.lib, "_pandas_api", None)
    if asks is None or "pandas" in sys.modules or "pyarrow.dataset" in sys.modules:
        return import_module("pyarrow.dataset")
    hides = _NoPandas()
    sys.meta_path.insert(0, hides)
    try:
        return import_module("pyarrow.dataset")
    finally:
        sys.meta_path.remove(hides)
        asks.__init__()  # as if it had never asked


Dataset = load().Dataset
