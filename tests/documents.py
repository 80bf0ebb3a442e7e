"""The examples of a page, as a reader types them: one after the other, in one folder.

========================  ===========================================================================
```` ```console ````      commands. One that starts a server runs beside those that follow, until
                          another one takes its port or the page ends
```` ```python ````       run one after the other in one interpreter for each page
```` ```conf ````, any    a file, where the first line is a comment with its name (``# hub.conf``)
```` ```text ````         behind commands or Python: lines that are printed, others may stand between.
                          Numbers, and so times and widths, may be others
========================  ===========================================================================

A comment of HTML before a block says what the reader does not see: ``<!-- not run: the reason -->``,
``<!-- file: orders.yaml -->``, ``<!-- before: a command -->`` (or "stop the servers"), ``<!-- fails -->``,
``<!-- example: the reason -->`` where a ``text`` is not what comes of the commands before it.

Ports and folders that belong to the whole machine are replaced by others of the test's own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests import copies
from tests.peers import START_TIMEOUT_S, free_port

ROOT = Path(__file__).parents[1]
STOP = "stop the servers"
PORTS = ("4222", "4223", "7422", "8080", "8222", "8443", "9408")
FOLDERS = ("/etc/pelton", "/var/lib/", "/var/log/", "/run/")
_FENCE = re.compile(r"^( *)```(\w*)$")
_NOTE = re.compile(r"^ *<!-- (not run|file|before|fails|example)(?:: (.*?))? -->$")
_NAME = re.compile(r"^# (?:/etc/pelton/)?([\w.-]+\.(?:conf|py|yaml))\b")
_SERVER = re.compile(
    r"^(\w+=\S+ )*(\S*/)?(pelton-server|pelton serve)\b(?!.* (-t|-sl|--help|-v)\b)"
)
_STAMP = re.compile(r"^\[\d+\] [\d/]+ [\d:.]+ (?=\[)", re.MULTILINE)  # pages leave it out
_EDGE = re.compile(r"[ \t]*([|│┆])[ \t]*")
_NUMBER = re.compile(r"[\d,.:]*\d[\d,.:TZ-]*(?: (?:B|KiB|MiB|GiB|kB|MB))?")


@dataclass
class Block:
    """A block of a page; ``line`` is that of its fence, ``shown`` the text behind it."""

    kind: str
    text: str
    line: int
    notes: dict[str, list[str]]
    shown: str | None = None

    @property
    def runs(self) -> bool:
        """Whether a reader runs it, and nothing says that the tests don't."""
        return self.kind in ("console", "python") and "not run" not in self.notes

    def commands(self) -> Iterator[tuple[int, str]]:
        """Commands with their lines; one may go over several."""
        held: list[str] = []
        for number, line in enumerate(self.text.splitlines(), self.line + 1):
            held.append(line)
            command = "\n".join(held)
            if line.endswith("\\") or not _whole(command):
                continue
            if command.strip() and not command.lstrip().startswith("#"):
                yield number - len(held) + 1, command
            held = []


def _whole(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:  # a quote that is not closed
        return False
    return True


def blocks_of(page: Path) -> list[Block]:
    """All blocks of a page, in order."""
    found: list[Block] = []
    notes: dict[str, list[str]] = {}
    lines = iter(enumerate(page.read_text().splitlines(), 1))
    behind = False  # nothing but empty lines since a block that runs
    for number, line in lines:
        if note := _NOTE.match(line):
            notes.setdefault(note[1], []).append(note[2] or "")
        elif fence := _FENCE.match(line):
            body = []
            for _, inner in lines:
                if inner == f"{fence[1]}```":
                    break
                body.append(inner.removeprefix(fence[1]))
            block = Block(fence[2], "\n".join(body) + "\n", number, notes)
            if block.kind == "text" and behind and "example" not in notes:
                found[-1].shown = block.text
            found.append(block)
            behind, notes = block.kind in ("console", "python"), {}
        elif line.strip():
            behind, notes = False, {}
    return found


@dataclass
class Reader:
    """Somebody who types what a page says, in a folder of their own."""

    page: Path
    folder: Path
    url: str = ""
    server: str = ""
    """What runs in place of pelton-server, if anything."""
    copies: str | None = field(default_factory=copies.programs)
    """A folder with programs that stand for those of the same names."""
    _ports: dict[str, str] = field(default_factory=lambda: {p: str(free_port()) for p in PORTS})
    _servers: list[tuple[str, subprocess.Popen[bytes], Path]] = field(default_factory=list)
    _python: subprocess.Popen[str] | None = None
    _environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        self.url = f"nats://127.0.0.1:{self._ports['4222']}"
        here = str(Path(sys.executable).parent)
        self._environment = os.environ | {
            "PATH": ":".join(
                each for each in (self.copies, here, os.environ["PATH"]) if each is not None
            ),
            "XDG_DATA_HOME": str(self.folder / ".data"),  # keys of a reader, not of the machine
            "NATS_URL": self.url,
            "COLUMNS": "200",
            "PYTHONUNBUFFERED": "1",
        }
        (self.folder / ".venv").symlink_to(Path(sys.executable).parents[1])
        (self.folder / "deploy").symlink_to(ROOT / "deploy")
        for name in FOLDERS:
            (self.folder / name.strip("/")).mkdir(parents=True)

    def read(self) -> None:
        """Run the page; AssertionError with file and line of what does not do as it says."""
        for block in blocks_of(self.page):
            if "not run" in block.notes:
                continue
            for command in block.notes.get("before", []):
                self._command(command, block.line, fails=False)
            name = _NAME.match(block.text)
            for file in block.notes.get("file", []) or ([name[1]] if name else []):
                self._keep(file, block.text)
            if block.runs:
                self._run(block)

    def close(self) -> None:
        """End what was started."""
        for _, process, _ in self._servers:
            _end(process)
        if self._python is not None:
            assert self._python.stdin is not None
            self._python.stdin.close()
            self._python.wait(timeout=60)

    def _run(self, block: Block) -> None:
        fails = "fails" in block.notes
        if block.kind == "python":
            printed = self._code(block)
        else:
            printed = "".join(self._command(text, at, fails) for at, text in block.commands())
        deadline = time.monotonic() + START_TIMEOUT_S
        while missing := _missing(block.shown or "", self._logs() + printed):
            late = block.kind == "python" or time.monotonic() > deadline
            assert not late, f"{self._at(block.line)}: not printed: {missing!r} of\n{printed}"
            time.sleep(0.05)  # a server's log may be behind

    def _logs(self) -> str:
        return "".join(log.read_text() for _, _, log in self._servers)

    def _at(self, line: int) -> str:
        return f"{self.page.relative_to(ROOT)}:{line}"

    def _own(self, text: str) -> str:
        for port, own in self._ports.items():
            text = re.sub(rf"\b{port}\b", own, text)
        for name in FOLDERS:
            text = re.sub(rf"(?<![\w.]){name}", f"{self.folder}{name}", text)
        return text.replace("10.0.0.5", "127.0.0.1")

    def _keep(self, name: str, text: str) -> None:
        for place in (self.folder, self.folder / "etc" / "pelton"):
            (place / name).write_text(self._own(text))

    def _command(self, command: str, line: int, fails: bool) -> str:
        if command == STOP:
            while self._servers:
                _end(self._servers.pop()[1])
            return ""
        text = self._own(command)
        if _SERVER.match(text):
            return self._serve(text, line)
        # A command may set variables for those behind it.
        script = f"set -o pipefail\n{text}\nstatus=$?; env -0 > .environment; exit $status"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{self._at(line)}: {command}\n{done.stdout}"
        kept = (self.folder / ".environment").read_text().split("\0")
        self._environment = dict(entry.split("=", 1) for entry in kept if entry)
        return done.stdout

    def _serve(self, command: str, line: int) -> str:
        command = re.sub(r"\s*(#.*|&\s*)$", "", command)
        port = self._ports["4222"]
        if given := re.search(r" (?:-p|--port) (\d+)", command):
            port = given[1]
        elif config := re.search(r" (?:-c|serve) ([^\s-]\S*)", command):
            text = (self.folder / config[1]).read_text()
            listens = re.search(r'^(?:port|listen)\s*[:=]\s*"?(?:\S*:)?(\d+)', text, re.MULTILINE)
            port = listens[1] if listens else port
            command += "" if listens else f" -p {port}"
        else:
            command += f" -p {port}"
        for other in [one for one in self._servers if one[0] == port]:
            _end(other[1])
            self._servers.remove(other)
        command = re.sub(_SERVER, lambda found: _executed(found[0]), command)
        if self.server:
            command = command.replace("pelton serve", "pelton-server -js -sd .data", 1)
            command = command.replace("pelton-server", f"{self.server} -a 127.0.0.1", 1)
        log = self.folder / f"server-{port}-{line}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        self._servers.append((port, process, log))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _ready(log, self.folder / "var" / "log"):
            running = process.poll() is None and time.monotonic() < deadline
            assert running, f"{self._at(line)}: {command}\n{log.read_text()}"
            time.sleep(0.02)
        return ""

    def _code(self, block: Block) -> str:
        if self._python is None:
            self._python = copies.Popen(
                [sys.executable, copies.INTERPRETER],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=(self.folder / "stderr.log").open("ab"),
                text=True,
            )
        code = re.sub(
            r"(?<!server\.)(?<!broker\.)\b(connect|connect)\(\)",  # those have their own URL
            rf"\1({self.url!r})",
            self._own(block.text),
        )
        code = re.sub(
            r'format\("(jetstream(?:_kv|_object)?)"\)',
            rf'format("\1").option("servers", "{self.url}")',
            code,
        )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        place = self._at(block.line)
        self._python.stdin.write(
            json.dumps({"code": "\n" * block.line + code, "place": place}) + "\n"
        )
        self._python.stdin.flush()
        printed: list[str] = []
        for line in self._python.stdout:
            if line.startswith("\0"):
                assert line == "\0done\n", f"{place}: {''.join(printed)}"
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"{place}: the interpreter has ended\n{''.join(printed)}")


def _missing(shown: str, printed: str) -> str | None:
    """The first line that is shown and not printed behind those before it."""
    rest = iter(_masked(printed))
    return next((line for line in _masked(shown) if line not in rest), None)


def _masked(text: str) -> list[str]:
    """Its lines, with numbers and white space that may differ made the same."""
    text = _EDGE.sub(r"\1", _STAMP.sub("", text))
    lines = (" ".join(_NUMBER.sub("0", line).split()) for line in text.splitlines())
    return [line for line in lines if line]


def _executed(words: str) -> str:
    """The beginning of a command, so that the shell becomes what it runs."""
    *settings, program = words.split()
    return " ".join(["exec", "env", *settings, program])


def _ready(log: Path, folder: Path) -> bool:
    """Whether a server says so, in what it prints or in the file that its configuration names."""
    written = [log, *folder.glob("*.log")]
    words = ("Server is ready", "Ctrl-C stops the server")  # the log, and `pelton serve` itself
    return any(each in file.read_text() for file in written for each in words)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
