"""Whatever a user types behind any option of any command, the command ends with a documented status.

Each option and argument of the command tree gets values that no one means. A command has to end with one
line and a status; an exception that leaves it is a fault. `SEED` draws a part for `make test`.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.cli.__main__ import main
from pelton.cli.session import Session
from pelton.cli.tree import pelton
from pelton.client.sync import connect
from tests.cli.test_command_tree import commands
from tests.copies.local import LocalServer
from tests.ports import free_port
from tests.ways import SEED, length

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""An alarm may ring inside of a finalizer."""
SECONDS_MOST = 1.0
"""A command that follows something is interrupted after this time."""
STATUSES = {0, 1, 2, 3, 130}
"""3 is the "unknown" of `server check`."""
VALUES = (
    "99999999999999999999",
    "-99999999999999999999",
    "9223372036854775808",
    "9223372036854775807",
    "18446744073709551615",
    "4294967296",
    "9" * 5000,
    "300y",
    "292y",
    "-300y",
    "99999999999999999999h",
    "10E",
    "99999999999999999999GB",
    "0",
    "-1",
    "1.5",
    "1e400",
    "nan",
    "²",
    "٣",
    "",
    " ",
    "a b",
    "\t\n",
    "a\0b",
    "\udcff",
    "x" * 100_000,
    "\u202e\u2028😀",
    "{}",
    '{"name":',
    "[" * 3000,
    "(" * 3000,
    "%s{0}{{Count}}",
    "--",
    "-",
    ":",
    "=",
    "a=b",
    "a:b",
    ",",
    ">",
    "*.>",
    "a..b",
    "$JS.API.>",
    "2026-02-30",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "nats://",
    "nats://[::1",
    "http://a:99999",
    "DIRECTORY",
    "MISSING",
    "BINARY",
)
PARSED_ONLY = {
    "run",
    "bundle",
    "shims",
    "jsm",
    "server run",
    "plgd run",
    "plgd gateway",
    "pipeline",
    "spark",
    "tables",
}
"""Commands, or groups, that start other programs: only their options are read here."""


def words_of(command: click.Command, place: dict[str, str]) -> dict[str, list[str]]:
    """A value for each required argument and option."""
    found = {}
    for each in command.params:
        if each.required and each.name is not None:
            found[each.name] = _plain(each, place)
    return found


def _plain(parameter: click.Parameter, place: dict[str, str]) -> list[str]:
    kind = parameter.type
    value = "x"
    if isinstance(kind, click.Choice):
        value = str(kind.choices[0])
    elif isinstance(kind, click.Path) and kind.exists:
        value = place["DIRECTORY" if not kind.file_okay else "FILE"]
    elif isinstance(kind, click.types.IntParamType):
        value = "1"
    elif kind.name == "duration":
        value = "1s"
    elif parameter.name in ("stream", "name", "names", "source"):
        value = "S"
    if isinstance(parameter, click.Option):
        return [parameter.opts[-1], value]
    return [value] * max(parameter.nargs, 1)


def cases(place: dict[str, str]) -> Iterator[tuple[str, click.Command, list[str]]]:
    """Command lines: each with one hostile value."""
    for path, command in commands(pelton):
        plain = words_of(command, place)
        for each in command.params:
            if isinstance(each, click.Option) and (each.is_flag or each.hidden):
                continue  # the hidden ones are those of all commands: `common` tries them once
            for value in VALUES:
                given = dict(plain)
                said = place.get(value, value)
                if isinstance(each, click.Option):
                    given[str(each.name)] = [
                        f"{each.opts[0]}={said}"
                        if each.opts[0].startswith("--")
                        else f"{each.opts[0]}{said}"
                    ]
                else:
                    given[str(each.name)] = [said] * max(each.nargs, 1)
                yield path, command, [word for words in given.values() for word in words]


def common(place: dict[str, str]) -> Iterator[tuple[str, click.Command, list[str]]]:
    """The options of all commands, with one that asks the server."""
    command = dict(commands(pelton))["stream info"]
    for each in pelton.params:
        if isinstance(each, click.Option) and not each.is_flag:
            for value in VALUES:
                yield "stream info", command, ["S", f"{each.opts[-1]}={place.get(value, value)}"]


def is_parsed_only(path: str) -> bool:
    return path in PARSED_ONLY or path.partition(" ")[0] in PARSED_ONLY


class Alarm:
    """Interrupts a command that takes too long; what it then raises is not its fault."""

    rung = False

    def __call__(self, *_: Any) -> None:
        self.rung = True
        raise KeyboardInterrupt


alarm = Alarm()


def tried(path: str, command: click.Command, words: list[str]) -> str:
    """How the command line goes wrong, or ""."""
    alarm.rung = False
    signal.setitimer(signal.ITIMER_REAL, SECONDS_MOST)
    try:
        if is_parsed_only(path):
            top = pelton.make_context("pelton", ["--no-context", "x"])
            top.obj = top.obj or Session(**{k: v for k, v in top.params.items() if k != "form"})
            with command.make_context(path, words, parent=top):
                pass
            return ""
        status = main([*path.split(), *words])
    except (click.ClickException, click.exceptions.Exit):
        return ""
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return ""
    except BaseException as problem:
        return "" if alarm.rung else f"{type(problem).__name__}: {problem}"[:200]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "" if status in STATUSES else f"status {status}"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The paths behind the names in `VALUES`, in a folder that a command may spoil."""
    folder = tmp_path / "folder"
    folder.mkdir()
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "file").write_text("{}")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.setenv("EDITOR", "true")
    monkeypatch.delenv("PELTON_STORE", raising=False)
    monkeypatch.chdir(work)
    before = signal.signal(signal.SIGALRM, alarm)
    yield {
        "DIRECTORY": str(folder),
        "MISSING": str(tmp_path / "missing" / "file"),
        "BINARY": str(tmp_path / "binary"),
        "FILE": str(tmp_path / "file"),
    }
    signal.signal(signal.SIGALRM, before)


def _try(place: dict[str, str], many: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("duckdb", "pyarrow", "pyarrow.dataset", "rich.console"):
        with contextlib.suppress(ImportError):
            import_module(name)  # an interrupted import leaves half a module
    every = [*cases(place), *common(place)]
    drawn = random.Random(SEED).sample(every, min(many, len(every)))
    faults = {}
    with open(os.devnull) as nothing:
        for path, command, words in drawn:
            monkeypatch.setattr(sys, "stdin", nothing)
            if text := tried(path, command, words):
                line = f"pelton {path} {' '.join(words)!r}"
                faults[line if len(line) < 200 else line[:200] + "…"] = text
    assert not faults, "\n".join(f"{line}\n    {text}" for line, text in faults.items())


def test_without_a_server(
    place: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{free_port()}")
    _try(place, length(400, 20_000), monkeypatch)


def test_with_a_server(
    place: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    with LocalServer() as server:
        monkeypatch.setenv("NATS_URL", server.url)
        monkeypatch.setenv("NATS_TIMEOUT", "200ms")
        with connect(server.url) as client:
            js = client.jetstream()
            js.create_stream(StreamConfig(name="S", subjects=["s"]))
            js.create_consumer("S", ConsumerConfig(durable_name="x"))
        _try(place, length(200, 20_000), monkeypatch)
