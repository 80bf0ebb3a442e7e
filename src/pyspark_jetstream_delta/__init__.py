"""Lets Spark find ``format("jetstream_delta")`` by itself.

Spark imports every top-level module whose name begins with ``pyspark_`` and takes its
``DefaultSource``. It does so for any format it does not know, so this module imports nothing until
it is asked for that name, and never fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pelton.spark.delta.source import DeltaDataSource as DefaultSource

__all__ = ["DefaultSource"]


if not TYPE_CHECKING:  # or checkers would take any name for one of this module

    def __getattr__(name: str) -> Any:
        """The data source, imported when Spark asks for it."""
        if name == "DefaultSource":
            try:
                from pelton.spark.delta.source import DeltaDataSource
            except ImportError:
                # An incomplete installation must not break the formats of others; ours is then not
                # found, which is true.
                raise AttributeError(name) from None
            return DeltaDataSource
        raise AttributeError(name)
