"""Fixtures for pytest, which loads them by itself (``-p no:penstock``: not).

========================== ==========================================================================
``penstock_server``        the broker of the test; by default its own, see ``--penstock-scope``
``penstock_client``        a blocking client of it
``penstock_async_client``  an asyncio client of it (with pytest-asyncio or anyio's plugin)
``penstock_connect``       ``async with penstock_connect() as nc``: asyncio clients with any plugin
``penstock_module_server`` one broker for the tests of a module
``penstock_session_server`` one broker for all tests of the process
``penstock_options``       the options of all these brokers; override it in a conftest
========================== ==========================================================================

``@pytest.mark.penstock(clock="manual")`` gives a test a broker of its own with these options.

With the scope "module" or "session", ``penstock_server`` is the broker of that scope, and each test
ends with a rollback to the state at its beginning: what fixtures of a wider scope made stays.
``--penstock-server=nats-server``, or a URL, runs the same tests against another server; tests that need
the clock, faults, assertions or snapshots are skipped there.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from penstock.client import BlockingClient, Client
    from penstock.client.aio import Connecting

    from .brokers import Broker

OWN = "penstock"
SCOPES = ("function", "module", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    group = parser.getgroup("penstock", "servers for tests")
    group.addoption(
        "--penstock-server",
        default=OWN,
        metavar="WHICH",
        help='server of the fixtures: "penstock" (in the process), "nats-server", or a URL',
    )
    group.addoption(
        "--penstock-scope",
        default=None,
        choices=SCOPES,
        help="which tests share the broker of penstock_server; they are isolated by rollback",
    )
    parser.addini("penstock_scope", "the default of --penstock-scope", default="function")
    parser.addini("penstock_clock", 'the clock of brokers: "system" or "manual"', default="system")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.addinivalue_line(
        "markers", "penstock(**options): give the test a broker of its own with these options"
    )
    scope = scope_of(config)
    if scope not in SCOPES:
        raise pytest.UsageError(f"penstock_scope must be one of {', '.join(SCOPES)}, got {scope!r}")
    clock = config.getini("penstock_clock")
    if clock not in ("system", "manual"):
        raise pytest.UsageError(f'penstock_clock must be "system" or "manual", got {clock!r}')


def scope_of(config: pytest.Config) -> str:
    """The scope of the option, or of the ini file."""
    return str(config.getoption("--penstock-scope") or config.getini("penstock_scope"))


def skip(reason: str) -> NoReturn:
    """Skip the test that runs."""
    pytest.skip(reason)


def server_of(config: pytest.Config, options: dict[str, Any]) -> Any:
    """A broker, which `with` starts, or a server in its place."""
    target = config.getoption("--penstock-server")
    options = {"clock": config.getini("penstock_clock"), **options}
    if target == OWN:
        from .brokers import Broker

        return Broker(**options)
    if options["clock"] == "manual":
        skip(f"needs a manual clock; the server is {target}: run without --penstock-server")
    from .real_server import RealServer

    return RealServer(target, skip)


def isolated(server: Any) -> Iterator[Any]:
    """The server for one test, which leaves it as it was."""
    from .real_server import RealServer

    if isinstance(server, RealServer):
        streams = server.streams()
        yield server
        server.remove_streams_but(streams)
        return
    state = server.snapshot()
    yield server
    server.rollback(state)


@pytest.fixture(scope="session")
def penstock_options() -> dict[str, Any]:
    """Keyword arguments of ``penstock.testing.broker`` for all brokers of the fixtures."""
    return {}


@pytest.fixture(scope="session")
def penstock_session_server(
    request: pytest.FixtureRequest, penstock_options: dict[str, Any]
) -> Iterator[Broker]:
    """One broker for all tests of the process; without isolation."""
    with server_of(request.config, penstock_options) as server:
        yield server


@pytest.fixture(scope="module")
def penstock_module_server(
    request: pytest.FixtureRequest, penstock_options: dict[str, Any]
) -> Iterator[Broker]:
    """One broker for the tests of a module; without isolation."""
    with server_of(request.config, penstock_options) as server:
        yield server


@pytest.fixture
def penstock_server(
    request: pytest.FixtureRequest, penstock_options: dict[str, Any]
) -> Iterator[Broker]:
    """The broker of the test, as new."""
    mark = request.node.get_closest_marker("penstock")
    scope = scope_of(request.config)
    if mark is not None or scope == "function":
        options = {**penstock_options, **(mark.kwargs if mark is not None else {})}
        with server_of(request.config, options) as server:
            if request.config.getoption("--penstock-server") == OWN:
                yield server
            else:
                yield from isolated(server)
        return
    yield from isolated(request.getfixturevalue(f"penstock_{scope}_server"))


@pytest.fixture
def penstock_client(penstock_server: Broker) -> Iterator[BlockingClient]:
    """A blocking client of ``penstock_server``."""
    with penstock_server.connect_blocking() as client:
        yield client


@pytest.fixture
def penstock_connect(penstock_server: Broker) -> Callable[..., Connecting]:
    """``connect`` of ``penstock_server``, for asyncio."""
    return penstock_server.connect


async def _async_client(penstock_server: Broker) -> AsyncIterator[Client]:
    async with penstock_server.connect() as client:
        yield client


_of_anyio = pytest.fixture(_async_client, name="_penstock_client_of_anyio")
if importlib.util.find_spec("pytest_asyncio") is not None:
    _of_asyncio: Any = importlib.import_module("pytest_asyncio").fixture(
        _async_client, name="_penstock_client_of_asyncio"
    )


@pytest.fixture
def penstock_async_client(request: pytest.FixtureRequest) -> Client:
    """An asyncio client of ``penstock_server``, in the loop of pytest-asyncio or of anyio's plugin."""
    name = "_penstock_client_of_asyncio"
    if "anyio_backend" in request.fixturenames:
        if str(request.getfixturevalue("anyio_backend_name")) != "asyncio":
            skip('Penstock\'s client needs asyncio: let a fixture anyio_backend return "asyncio"')
        name = "_penstock_client_of_anyio"
    elif importlib.util.find_spec("pytest_asyncio") is None:
        pytest.fail(
            "penstock_async_client needs pytest-asyncio, or a test with pytest.mark.anyio: use one of "
            "them, or write `async with penstock_connect() as nc`",
            pytrace=False,
        )
    client: Client = request.getfixturevalue(name)
    return client
