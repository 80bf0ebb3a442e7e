"""The plan of a write, which its tasks carry out, and the result of each task."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from pelton.spark.writing.composing import Composer, Messages
    from pelton.spark.writing.options import WriteOptions
    from pelton.spark.writing.target import Target


@dataclass(frozen=True)
class WritePlan:
    """The target and the options of a write; picklable."""

    options: WriteOptions
    composer: Composer
    target: Target


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of one partition.

    ``rows`` is the number of rows Spark gave, ``already`` how many of them the stream had before,
    and ``refused`` how many went to the side output. ``error`` ends the write: it reports a row
    that cannot be written. The task itself does not fail, because Spark would only run it again for
    nothing.
    """

    rows: int
    already: int = 0
    refused: int = 0
    error: str = ""


def fingerprint(messages: Messages) -> str:
    """A short hash of the first row, to tell these rows from others."""
    text = messages.subject_of(0).encode("utf-8", "surrogateescape") + b"\0"
    return hashlib.blake2b(text + messages.payload_of(0), digest_size=8).hexdigest()
