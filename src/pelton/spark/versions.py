"""The versions of Spark that the formats run on.

=====  ================================================================================
4.0    Python data sources, which the formats are
4.1    Arrow batches for writers of micro-batches
4.2    ``Trigger.AvailableNow`` and the newest offset in the progress, for Python sources
=====  ================================================================================

:mod:`pelton.spark.older` makes up for what the older ones lack. Does not import Spark.
"""

from __future__ import annotations

import warnings
from functools import cache


def number_of(version: str) -> tuple[int, int]:
    """``4.1.0.dev0`` as ``(4, 1)``."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


@cache
def check_version(version: str) -> None:
    """Raise RuntimeError for a Spark that is too old; warn once of what it cannot do."""
    number = number_of(version)
    if number < (4, 0):
        raise RuntimeError(f"Pelton's formats need Spark 4.0 or newer; this is Spark {version}")
    if number < (4, 2):
        warnings.warn(
            f"Spark {version} ends a query with Trigger.AvailableNow after one micro-batch, and its"
            " progress does not have the newest offset of a source; Spark 4.2 can do both",
            stacklevel=3,
        )
