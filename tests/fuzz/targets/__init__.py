"""What is fuzzed: a module per target.

A target has ``run(data)``, which raises (or crashes) when something is wrong, ``seeds()``, inputs to begin with, and may
have ``WORDS``, byte strings that mean something to what is fuzzed, ``MAX_BYTES``, how long an input may be, and
``PYTHON = True`` when the coverage of Python modules is to guide, too.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Target:
    name: str
    run: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    words: tuple[bytes, ...]
    max_bytes: int


def names() -> list[str]:
    folder = Path(__file__).parent
    return sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))


def load(name: str) -> Target:
    """The target of that name; ValueError when there is none."""
    if name not in names():
        raise ValueError(f"no target {name!r}; there are {', '.join(names())}")
    module: Any = importlib.import_module(f"{__name__}.{name}")
    return Target(
        name,
        module.run,
        module.seeds,
        tuple(getattr(module, "WORDS", ())),
        getattr(module, "MAX_BYTES", 4096),
    )
