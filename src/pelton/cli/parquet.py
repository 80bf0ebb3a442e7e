"""Parquet files as commands write them: compressed with zstd; what is interrupted gets no end.

Does not depend on streams and queries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from pyarrow import parquet

if TYPE_CHECKING:
    import pyarrow as pa


class _Writer(parquet.ParquetWriter):  # type: ignore[misc]  # has no types
    def __del__(self) -> None:
        """Write nothing: the base would write the end of the file, which may be closed by then."""


def writer(file: BinaryIO, schema: pa.Schema) -> Any:
    """A ``pyarrow.parquet.ParquetWriter`` into an open file; ``close`` writes the end."""
    return _Writer(file, schema, compression="zstd")
