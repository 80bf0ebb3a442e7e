"""A server and a stream for tests that read one; shared with the tests of the pipeline."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from pelton.client.base.models import StreamConfig
from pelton.client.sync import Client, connect
from pelton.spark.connection import forget_client
from pelton.spark.reading.options import Options, parse_options
from tests.peers import ServerProcess, available_servers, start_server
from tests.ways import skip_other_servers


@pytest.fixture(scope="module", params=available_servers((2, 9)))
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """Each kind of server in turn, for the length of a module."""
    started = start_server(request.param)
    yield started
    started.remove()


@pytest.fixture
def one_server(request: pytest.FixtureRequest) -> None:
    """Only the first kind of server in `make test`: the test is about Spark's calls."""
    skip_other_servers(request)


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    """A client of the server."""
    with connect(server.url) as connected:
        yield connected


class Stream:
    """A stream with a name of its own, and what a test does to it."""

    def __init__(self, client: Client, url: str, name: str, *, storage: str = "memory") -> None:
        self.js = client.jetstream()
        self.url = url
        self.name = name
        with contextlib.suppress(Exception):
            self.js.delete_stream(name)
        subjects = [f"{name.lower()}.>"]
        self.js.create_stream(StreamConfig(name=name, subjects=subjects, storage=storage))

    def fill(self, count: int, *, tokens: int = 3, size: int = 0) -> None:
        """Publish ``count`` messages ``m<sequence>`` on ``tokens`` subjects in turn."""
        first = self.js.stream_info(self.name).state.last_seq + 1
        with self.js.publisher() as publisher:
            for seq in range(first, first + count):
                data = f"m{seq}".encode().ljust(size, b".")
                publisher.publish(f"{self.name.lower()}.{seq % tokens}", data)

    def options(self, *, streaming: bool = False, **given: object) -> Options:
        """Reader's options for this stream."""
        texts = {name: str(value) for name, value in given.items()}
        if "streamPattern" not in texts:
            texts.setdefault("stream", self.name)
        return parse_options({"servers": self.url, **texts}, streaming=streaming)


@pytest.fixture
def family(stream: Stream) -> Iterator[Callable[[str], Stream]]:
    """Makes more streams beside ``stream``, whose names begin with its name and ``_``."""
    made = []

    def make(suffix: str) -> Stream:
        made.append(Stream(stream.js.client, stream.url, f"{stream.name}_{suffix}"))
        return made[-1]

    yield make
    for each in made:
        with contextlib.suppress(Exception):
            each.js.delete_stream(each.name)


@pytest.fixture
def stream(
    client: Client, server: ServerProcess, request: pytest.FixtureRequest
) -> Iterator[Stream]:
    """An empty stream for one test."""
    name = "T" + str(abs(hash(request.node.nodeid)))[:10]
    made = Stream(client, server.url, name)
    yield made
    forget_client(made.options().servers)
    with contextlib.suppress(Exception):
        made.js.delete_stream(name)
