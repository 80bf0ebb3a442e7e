"""What the tests of the sinks have in common: streams of their own, rows, and writes without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from pelton.client.base.models import StreamConfig
from pelton.client.sync import Client, connect
from pelton.spark.connection import forget_client
from pelton.spark.servers import Servers
from pelton.spark.writing.plan import WritePlan, Written
from pelton.spark.writing.row_errors import Task
from pelton.spark.writing.writer import plan_write, write_partition
from tests.peers import ServerProcess, available_servers, start_server

ATOMIC_FROM = (2, 12)


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def broker(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Each kind of server in turn, from 2.9 on."""
    started = start_server(request.param)
    yield started
    started.remove()


class Sink:
    """A stream to write into, and what a test asks of it."""

    def __init__(self, client: Client, url: str, name: str) -> None:
        self.client = client
        self.js = client.jetstream()
        self.url = url
        self.name = name
        self.low = name.lower()

    def make(self, **config: object) -> None:
        """Create the stream, with subjects ``<name>.>`` unless told otherwise."""
        subjects = config.pop("subjects", [f"{self.low}.>"])
        self.js.create_stream(StreamConfig(name=self.name, subjects=subjects, **config))

    def plan(self, schema: pa.Schema, **given: object) -> WritePlan:
        """The plan of a write with these options."""
        options = {"servers": self.url, "stream": self.name, "retryTimeout": "10s"}
        options.update({name: str(value) for name, value in given.items()})
        wanted = {name: value for name, value in options.items() if value != "None"}
        return plan_write(wanted, from_arrow_schema(schema))

    def stored(self) -> list[tuple[str, bytes]]:
        """(subject, payload) of every message but progress records, in order."""
        last = self.js.stream_info(self.name).state.last_seq
        return [
            (row[2], row[4])
            for columns in self.js.read_columns(self.name, 1, last + 1)
            for row in columns.rows()
            if not row[2].startswith("spark.progress.")
        ]

    def headers(self, seq: int) -> dict[str, list[str]]:
        """The headers of a message."""
        return self.js.get_message(self.name, seq).headers.lists()

    @property
    def progress(self) -> str:
        """Where the markers of atomic batches are."""
        return f"spark.progress.{self.name}.>"


@pytest.fixture
def sink(broker: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Sink]:
    """A stream for one test; the test makes it."""
    name = "W" + str(abs(hash(request.node.nodeid)))[:10]
    with connect(broker.url) as client:
        made = Sink(client, broker.url, name)
        yield made
        forget_client(Servers(urls=(broker.url,), retry_timeout_seconds=10.0))
        with contextlib.suppress(Exception):
            made.js.delete_stream(name)


def needs_atomic(sink: Sink) -> None:
    """Skip on a server without atomic batches."""
    if not sink.client.server_info.version_at_least(*ATOMIC_FROM):
        pytest.skip("no atomic batches before 2.12")


def task(epoch: int = 0, partition: int = 0, writer: str = "query") -> Task:
    """One partition of one micro-batch."""
    return Task(writer, epoch, partition)


def batches(
    rows: Iterable[dict[str, object]], schema: pa.Schema, size: int = 100
) -> Iterator[pa.RecordBatch]:
    """Rows as Spark hands them over, ``size`` in a batch."""
    held = list(rows)
    for start in range(0, len(held), size):
        yield pa.RecordBatch.from_pylist(held[start : start + size], schema=schema)


DATA = pa.schema([("data", pa.binary())])


def payloads(*numbers: int) -> Iterator[dict[str, object]]:
    """Rows of ``range(*numbers)``."""
    return ({"data": b"row %d" % number} for number in range(*numbers))


def write(
    plan: WritePlan,
    rows: Iterable[dict[str, object]],
    schema: pa.Schema = DATA,
    of: Task | None = None,
    size: int = 100,
) -> Written:
    """Write rows as one task does."""
    return write_partition(plan, of or task(), batches(rows, schema, size))
