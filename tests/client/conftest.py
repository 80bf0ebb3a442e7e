"""A server of every kind there is, for the tests that need one."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.client.features import leave_out
from tests.client.shells import SHELLS
from tests.peers import OLDEST, ServerProcess, available_servers, running_server
from tests.ways import take_turns

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

PURE = os.environ.get("PELTON_PURE") == "1"  # `make test-plain`: twins in place of compiled modules
# They are about names in the whole package, and import all of it.
collect_ignore = ["test_docs.py", "test_names.py"] if PURE else []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Leave out a test whose fixtures start our own server, when its compiled modules are hidden."""
    yield from without_server()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """The same for a test that starts one itself."""
    yield from without_server()


def without_server() -> Generator[None, None, None]:
    try:
        yield
    except Exception as problem:
        if PURE and "PELTON_PURE=1 hides" in str(problem):
            pytest.skip("needs our own server")
        raise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what the server is too old for. Both shells carry out the same steps: each beside one server."""
    leave_out(items)
    take_turns(items, "tests/client/")


@pytest.fixture(scope="session", params=available_servers(OLDEST))
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """One server for all tests; they must not stop it, and use names of their own."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture(params=available_servers(OLDEST))
def own_server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server for this test alone, which it may stop and start."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def unique() -> str:
    """A name nobody else uses: for streams and the first token of subjects."""
    return f"T{uuid.uuid4().hex[:12]}"


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    """Either shell of the client, for ``connected``."""
    name: str = request.param
    return name
