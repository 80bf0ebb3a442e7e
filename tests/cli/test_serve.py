"""``pelton serve``: a server in one command, and the lines that it prints are typed."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pelton.server.__main__ import main as pelton_server
from pelton.server.errors import OptionError, StartError
from pelton.server.options import SERVE, parse_options, usage
from pelton.server.serve import data_folder, greeting
from pelton.sync import connect
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BIN = Path(sys.executable).parent
COMMAND = (str(BIN / "pelton"), "serve")
DROP_BOUNDING, DAC_OVERRIDE = 24, 1


def user(home: Path, **more: str) -> dict[str, str]:
    """The environment of somebody whose home is that folder, with `pelton` on the PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    kept.pop("NATS_URL", None)
    return kept | {"HOME": str(home), "PATH": f"{BIN}:{os.environ['PATH']}"} | more


class Serving(NamedTuple):
    """A server that has said that it is ready."""

    process: subprocess.Popen[str]
    said: str

    @property
    def url(self) -> str:
        return found(r"clients at (\S+)", self.said)

    @property
    def lines(self) -> list[str]:
        """The lines to type."""
        return re.findall(r"^  (\S.*)$", self.said, re.MULTILINE)


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match, text
    return match[1]


@contextmanager
def serving(
    home: Path, *options: str, command: tuple[str, ...] = COMMAND, **more: str
) -> Iterator[Serving]:
    process = subprocess.Popen(
        [*command, *options],
        cwd=home,
        env=user(home, **more),
        stdout=subprocess.PIPE,
        stderr=(home / "stderr").open("w"),
        text=True,
    )
    try:
        assert process.stdout is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stdout.readline()
            assert line, (said, (home / "stderr").read_text())
            said += line
        yield Serving(process, said)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def refused(
    home: Path, *options: str, before: Callable[[], object] | None = None, **more: str
) -> str:
    """What a server that does not start says: one line."""
    done = subprocess.run(
        [*COMMAND, *options],
        cwd=home,
        env=user(home, **more),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        preexec_fn=before,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def typed(line: str, home: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", line],
        env=user(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), line
    return done.stdout


def test_the_lines_it_prints_work_and_messages_stay(tmp_path: Path) -> None:
    port = str(free_port())
    for start in (1, 2):
        with serving(tmp_path, "-p", port) as server:
            assert server.url == f"nats://127.0.0.1:{port}"
            store = found(r"streams are in (.*)", server.said)
            assert store == str(tmp_path / ".local" / "share" / "pelton")
            assert "sound" in typed(f"pelton store ls {store}", tmp_path) or start == 1
            add, pub, sub = server.lines
            assert "ORDERS" in typed(add, tmp_path)
            assert f"stored in ORDERS at sequence {start}" in typed(pub, tmp_path)
            assert typed(f"{sub} --terminate-at-end", tmp_path).count("42 bolts") == start
            if start == 1:
                server.process.kill()
        assert server.process.returncode == (-signal.SIGKILL if start == 1 else 0)
    assert (tmp_path / "stderr").read_text() == ""


def test_it_serves_this_machine_only_unless_asked(tmp_path: Path) -> None:
    with serving(tmp_path, "-p", "-1", XDG_DATA_HOME=str(tmp_path / "data")) as server:
        assert server.url.startswith("nats://127.0.0.1:")
        assert f"streams are in {tmp_path}/data/pelton\n" in server.said
        with connect(server.url) as client:
            assert client.server_info.host == "127.0.0.1"
            assert client.server_info.jetstream
    with serving(tmp_path, "-p", "-1", "-a", "0.0.0.0", "-sd", "here") as server:
        assert f"streams are in {tmp_path}/here\n" in server.said
        with connect(server.url) as client:
            assert client.server_info.host == "0.0.0.0"
    with serving(tmp_path, "-p", "-1", "-js=false") as server:
        assert "no JetStream" in server.said
        _, sub = server.lines
        assert "--all" not in sub


def test_a_file_rules(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_text("port: -1\nhost: 127.0.0.1\nserver_name: depot\n")
    for words in (("a.conf",), ("-c", "a.conf")):
        options = parse_options(words, SERVE)
        assert (options.config, options.given) == ("a.conf", {})
    command = [*COMMAND, "a.conf"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:  # the log, as pelton-server writes it
            if "Server is ready" in line:
                process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    assert not (tmp_path / ".local").exists()


@pytest.mark.parametrize("words", [("a.conf", "b.conf"), ("a.conf", "-c", "b.conf"), ("-c",)])
def test_there_is_one_file(words: tuple[str, ...]) -> None:
    with pytest.raises(OptionError):
        parse_options(words, SERVE)
    with pytest.raises(OptionError, match="unexpected argument"):
        parse_options(("a.conf",))  # pelton-server takes none, as nats-server


def test_the_log_comes_when_asked_for(tmp_path: Path) -> None:
    with serving(tmp_path, "-p", "-1", "-D"):
        pass
    assert "[INF] Server is ready" in (tmp_path / "stderr").read_text()


def test_a_port_in_use(tmp_path: Path) -> None:
    with serving(tmp_path, "-p", "-1") as server:
        port = server.url.rpartition(":")[2]
        said = refused(tmp_path, "-p", port, "-sd", "other")
        assert f"can't listen on 127.0.0.1:{port}: the port is taken" in said
        assert "choose another with -p" in said
        said = refused(tmp_path, "-p", "-1")
        assert f"is in use by another server (pid {server.process.pid})" in said
        assert "-sd" in said


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    call = ctypes.CDLL(None).prctl
    said = refused(home, "-p", "-1", before=lambda: call(DROP_BOUNDING, DAC_OVERRIDE))
    assert f"could not create storage directory {home}/.local/share/pelton" in said
    assert "Permission denied; choose another with -sd" in said
    (tmp_path / "file").touch()
    said = refused(home, "-p", "-1", XDG_DATA_HOME=str(tmp_path / "file"))
    assert "choose another with -sd" in said


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/ada")
    assert data_folder({}) == "/users/ada/.local/share/pelton"
    assert data_folder({"XDG_DATA_HOME": "/data"}) == "/data/pelton"
    assert data_folder({"XDG_DATA_HOME": "relative"}) == "/users/ada/.local/share/pelton"
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(StartError, match="no home folder to keep streams in; choose one with -sd"):
        data_folder({})


def test_lines_to_type_name_the_server_and_need_no_login(tmp_path: Path) -> None:
    url = "nats://127.0.0.1:4222"
    environ = {"XDG_CONFIG_HOME": str(tmp_path)}
    usual = greeting(url, "/s", {}, "uvx pelton", environ)
    assert "  uvx pelton pub -J orders.new '42 bolts'\n" in usual
    assert "Now type" not in greeting(url, "/s", {"user": "ada"}, "pelton", environ)
    assert "Now type" not in greeting("tls://127.0.0.1:4222", "/s", {}, "pelton", environ)
    other = greeting(url, "/s", {}, "pelton", environ | {"NATS_URL": "nats://example.com"})
    (tmp_path / "nats").mkdir()
    (tmp_path / "nats" / "context.txt").write_text("production")
    for said in (other, greeting(url, "/s", {}, "pelton", environ)):
        assert f"  pelton pub -J orders.new '42 bolts' -s {url}\n" in said


def test_as_a_module_it_prints_lines_for_the_module(tmp_path: Path) -> None:
    with serving(
        tmp_path, "-p", "-1", command=(sys.executable, "-m", "pelton.cli", "serve")
    ) as server:
        assert server.lines[0].startswith(f"{sys.executable} -m pelton.cli stream add")
        typed(server.lines[0], tmp_path)


def test_another_system_is_told_what_to_do(tmp_path: Path) -> None:
    code = "import sys; sys.platform = 'darwin'; from pelton.cli.__main__ import main; sys.exit(main())"
    for words in (("serve",), ("serve", "a.conf")):
        done = subprocess.run(
            [sys.executable, "-c", code, *words],
            env=user(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert line.startswith("pelton serve: the server, its stores and the loads of pelton bench")
        assert "need Linux: run them in a container or in WSL" in line


def test_there_is_one_parser(capsys: pytest.CaptureFixture[str]) -> None:
    assert pelton_server(["--help"], SERVE) == 0
    said = capsys.readouterr().out
    assert said == usage(SERVE)
    assert usage().partition("Server options:")[2] == said.partition("Server options:")[2]
    assert said.startswith("Usage: pelton serve [options] [file]\n")
    assert pelton_server(["--bogus"], SERVE) == 2
    assert capsys.readouterr().err == (
        "pelton serve: unknown option --bogus; see pelton serve --help\n"
    )


LOADED = """
import sys
before = set(sys.modules)
{code}
print(*sorted(set(sys.modules) - before))
"""


def loaded(code: str, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", LOADED.format(code=code), *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split())


def test_what_is_loaded() -> None:
    assert loaded("import pelton") <= {"pelton", "pelton.exports", "__future__", "types"}
    help_text = "from pelton.cli.__main__ import main; main(['serve', '--help'])"
    modules = loaded(help_text)
    assert {name.partition(".")[0] for name in modules if name in sys.modules} >= {"pelton"}
    strange = {"pyspark", "click", "rich", "asyncio", "pelton.engine", "pelton.client"}
    assert not modules & strange
    assert not {name for name in modules if name.startswith(("pelton.spark", "pelton.server.app"))}


def test_it_starts_with_what_the_server_needs(tmp_path: Path) -> None:
    """Before the first client is served it has loaded what pelton-server has, and the way to it."""
    start = """
from pelton.server import early_start
def serve(self, *parts):
    print(*sorted(set(sys.modules) - before))
    sys.stdout.flush()
    import os
    os._exit(0)
early_start.EarlyStart.serve = serve
"""
    options = f"['-a', '127.0.0.1', '-p', '-1', '-js', '-sd', {str(tmp_path)!r}]"
    server = loaded(f"{start}from pelton.server.__main__ import main; main({options})")
    ours = loaded(f"{start}from pelton.cli.__main__ import main; main(['serve', *{options}])")
    assert ours - server == {"pelton.cli", "pelton.cli.__main__", "pelton.server.serve"}
