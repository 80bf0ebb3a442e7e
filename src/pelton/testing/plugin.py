"""Fixtures for pytest, which loads them by itself (``-p no:pelton``: not).

========================== ==========================================================================
``pelton_server``        the broker of the test; by default its own, see ``--pelton-scope``
``pelton_client``        a blocking client of it
``pelton_async_client``  an asyncio client of it (with pytest-asyncio or anyio's plugin)
``pelton_connect``       ``async with pelton_connect() as nc``: asyncio clients with any plugin
``pelton_module_server`` one broker for the tests of a module
``pelton_session_server`` one broker for all tests of the process
``pelton_options``       the options of all these brokers; override it in a conftest
========================== ==========================================================================

``@pytest.mark.pelton(clock="manual")`` gives a test a broker of its own with these options.

With the scope "module" or "session", ``pelton_server`` is the broker of that scope, and each test
ends with a rollback to the state at its beginning: what fixtures of a wider scope made stays.
``--pelton-server=nats-server``, or a URL, runs the same tests against another server; tests that need
the clock, faults, assertions or snapshots are skipped there.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from pelton.client import sync
    from pelton.client.aio import Connecting
    from pelton.client.aio.connection import Client

    from .brokers import Broker

OWN = "pelton"
SCOPES = ("function", "module", "session")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Called by pytest."""
    group = parser.getgroup("pelton", "servers for tests")
    group.addoption(
        "--pelton-server",
        default=OWN,
        metavar="WHICH",
        help='server of the fixtures: "pelton" (in the process), "nats-server", or a URL',
    )
    group.addoption(
        "--pelton-scope",
        default=None,
        choices=SCOPES,
        help="which tests share the broker of pelton_server; they are isolated by rollback",
    )
    parser.addini("pelton_scope", "the default of --pelton-scope", default="function")
    parser.addini("pelton_clock", 'the clock of brokers: "system" or "manual"', default="system")


def pytest_configure(config: pytest.Config) -> None:
    """Called by pytest."""
    config.addinivalue_line(
        "markers", "pelton(**options): give the test a broker of its own with these options"
    )
    scope = scope_of(config)
    if scope not in SCOPES:
        raise pytest.UsageError(f"pelton_scope must be one of {', '.join(SCOPES)}, got {scope!r}")
    clock = config.getini("pelton_clock")
    if clock not in ("system", "manual"):
        raise pytest.UsageError(f'pelton_clock must be "system" or "manual", got {clock!r}')


def scope_of(config: pytest.Config) -> str:
    """The scope of the option, or of the ini file."""
    return str(config.getoption("--pelton-scope") or config.getini("pelton_scope"))


def skip(reason: str) -> NoReturn:
    """Skip the test that runs."""
    pytest.skip(reason)


def server_of(config: pytest.Config, options: dict[str, Any]) -> Any:
    """A broker, which `with` starts, or a server in its place."""
    target = config.getoption("--pelton-server")
    options = {"clock": config.getini("pelton_clock"), **options}
    if target == OWN:
        from .brokers import Broker

        return Broker(**options)
    if options["clock"] == "manual":
        skip(f"needs a manual clock; the server is {target}: run without --pelton-server")
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
def pelton_options() -> dict[str, Any]:
    """Keyword arguments of ``pelton.testing.broker`` for all brokers of the fixtures."""
    return {}


@pytest.fixture(scope="session")
def pelton_session_server(
    request: pytest.FixtureRequest, pelton_options: dict[str, Any]
) -> Iterator[Broker]:
    """One broker for all tests of the process; without isolation."""
    with server_of(request.config, pelton_options) as server:
        yield server


@pytest.fixture(scope="module")
def pelton_module_server(
    request: pytest.FixtureRequest, pelton_options: dict[str, Any]
) -> Iterator[Broker]:
    """One broker for the tests of a module; without isolation."""
    with server_of(request.config, pelton_options) as server:
        yield server


@pytest.fixture
def pelton_server(
    request: pytest.FixtureRequest, pelton_options: dict[str, Any]
) -> Iterator[Broker]:
    """The broker of the test, as new."""
    mark = request.node.get_closest_marker("pelton")
    scope = scope_of(request.config)
    if mark is not None or scope == "function":
        options = {**pelton_options, **(mark.kwargs if mark is not None else {})}
        with server_of(request.config, options) as server:
            if request.config.getoption("--pelton-server") == OWN:
                yield server
            else:
                yield from isolated(server)
        return
    yield from isolated(request.getfixturevalue(f"pelton_{scope}_server"))


@pytest.fixture
def pelton_client(pelton_server: Broker) -> Iterator[sync.Client]:
    """A blocking client of ``pelton_server``."""
    with pelton_server.connect_sync() as client:
        yield client


@pytest.fixture
def pelton_connect(pelton_server: Broker) -> Callable[..., Connecting]:
    """``connect`` of ``pelton_server``, for asyncio."""
    return pelton_server.connect


async def _async_client(pelton_server: Broker) -> AsyncIterator[Client]:
    async with pelton_server.connect() as client:
        yield client


_of_anyio = pytest.fixture(_async_client, name="_pelton_client_of_anyio")
if importlib.util.find_spec("pytest_asyncio") is not None:
    _of_asyncio: Any = importlib.import_module("pytest_asyncio").fixture(
        _async_client, name="_pelton_client_of_asyncio"
    )


@pytest.fixture
def pelton_async_client(request: pytest.FixtureRequest) -> Client:
    """An asyncio client of ``pelton_server``, in the loop of pytest-asyncio or of anyio's plugin."""
    name = "_pelton_client_of_asyncio"
    if "anyio_backend" in request.fixturenames:
        if str(request.getfixturevalue("anyio_backend_name")) != "asyncio":
            skip('Pelton\'s client needs asyncio: let a fixture anyio_backend return "asyncio"')
        name = "_pelton_client_of_anyio"
    elif importlib.util.find_spec("pytest_asyncio") is None:
        pytest.fail(
            "pelton_async_client needs pytest-asyncio, or a test with pytest.mark.anyio: use one of "
            "them, or write `async with pelton_connect() as nc`",
            pytrace=False,
        )
    client: Client = request.getfixturevalue(name)
    return client
