"""What the tasks of a write carry out, and what comes back from each of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from penstock.spark.writing.composing import Composer, Messages
    from penstock.spark.writing.options import WriteOptions
    from penstock.spark.writing.target import Target


@dataclass(frozen=True)
class WritePlan:
    """What is written where, and how; picklable."""

    options: WriteOptions
    composer: Composer
    target: Target


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What came of one partition.

    ``rows`` were given; ``already`` of them were in the stream before, ``refused`` went to the side
    output. ``error`` ends the write: a row cannot be written, and a task that failed of it would be
    tried again by Spark for nothing.
    """

    rows: int
    already: int = 0
    refused: int = 0
    error: str = ""


def fingerprint(messages: Messages) -> str:
    """What tells the first of these rows from others."""
    text = messages.subject_of(0).encode("utf-8", "surrogateescape") + b"\0"
    return hashlib.blake2b(text + messages.payload_of(0), digest_size=8).hexdigest()
