"""The tools of 2019 and 2020 on the pages that show them: each command of three pages of that time,
with what it prints. Times, sizes and the ends of inbox names may differ.

`STEPS` has the commands and their outputs as facts. With $PELTON_SEEDS, the folder of the pages, a
test looks that none of their commands is missing.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pelton import ConsumerConfig, StreamConfig
from pelton.cli.__main__ import main as pelton
from pelton.cli.early import core_tools, jsm, pages
from pelton.cli.early.shims import main as shim
from pelton.client.sync import connect
from tests.copies.local import LocalServer
from tests.peers import available_servers, free_port, running_server
from tests.ways import length

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.sync import Client

PATIENCE_SECONDS = 60
OK = 'Received response of "+OK"\n'
MESSAGES = length(2_000, 1_000_000)


class Step(NamedTuple):
    """A command, the answers to its prompts, and what it prints; `…` stands for any text."""

    command: str
    prints: str
    answers: tuple[str, ...] = ()
    status: int = 0


ADD = "Enter the following information\nName: {}\nSubjects: {}\nLimits (msgs, bytes, age): {}\nStorage: {}\n"


def added(*answers: str) -> Step:
    return Step("jsm add", ADD.format(*answers) + OK, answers)


def counted(name: str, messages: int, size: str) -> Step:
    first = min(messages, 1)
    return Step(
        f"jsm info {name}",
        f"\nMessages: {messages:,}\nBytes:    {size}\nFirstSeq: {first}\nLastSeq:  {messages:,}\n\n",
    )


def placed(obs: int, mset: int, pending: str, again: str) -> Step:
    return Step(
        "jsm info-obs wc p1",
        "Received response of {\n"
        f'  "Delivered": {{\n    "ObsSeq": {obs},\n    "SetSeq": {mset}\n  }},\n'
        '  "AckFloor": {\n    "ObsSeq": 0,\n    "SetSeq": 0\n  },\n'
        f'  "Pending": {pending},\n  "Redelivery": {again}\n}}\n',
    )


PUB = "Published [{}] : '{}'\n"
NEXT = Step(
    r"nats-req \$JS.RN.wc.p1 1", PUB.format("$JS.RN.wc.p1", "1") + "Received  [1] : 'hello'\n"
)
PENDING = '{\n    "1": …\n  }'
OF_2019 = [
    Step("jsm -h", "…Usage:\n  jsm [-s server] [-creds file] [command]\n…info-obs [mset] [obs]…"),
    added("derek", "foo bar", "", "file"),
    Step("jsm info", "\nMemory:  0 B of …\nStorage: 0 B of …\nMsgSets: 1 of Unlimited\n\n"),
    Step("jsm ls", "\n1) derek\n\n"),
    counted("derek", 0, "0 B"),
    Step("nats-pub foo hello", PUB.format("foo", "hello")),
    Step("nats-req bar world", PUB.format("bar", "world") + "Received  [_INBOX.…] : '+OK'\n"),
    counted("derek", 2, "76 B"),
    Step(f"nats-bench -np 20 -ns 0 -ms 128 -n {MESSAGES} foo", "Starting benchmark …"),
    counted("derek", MESSAGES + 2, jsm.size(161 * MESSAGES + 76)),
    Step("jsm rm derek", OK),
    added("derek", "foo, bar, baz.*", "-1 -1 1m", "file"),
    Step("jsm rm derek", OK),
    added("wc", "*", "", "file"),
    *(Step(f"nats-pub {number} hello", PUB.format(number, "hello")) for number in range(1, 6)),
    counted("wc", 5, "180 B"),
    Step(
        "jsm add-obs",
        "Enter the following information\nMessage Set Name: wc\nDurable Name: p1\nPush or Pull: pull\n"
        "Deliver All? (Y|n): \nReplay Policy (Instant|original): \n" + OK,
        ("wc", "p1", "pull", "", ""),
    ),
    placed(1, 1, "null", "null"),
    NEXT,
    placed(2, 2, PENDING, "null"),
    Step(r"nats-pub \$JS.A.wc.p1.1.1.1 -NAK", PUB.format("$JS.A.wc.p1.1.1.1", "-NAK")),
    NEXT,
    placed(3, 2, PENDING, '{\n    "1": 1\n  }'),
    Step(r"nats-pub \$JS.A.wc.p1.2.1.2 -NAK", PUB.format("$JS.A.wc.p1.2.1.2", "-NAK")),
    NEXT,
    Step(r"nats-pub \$JS.A.wc.p1.3.1.3 -NAK", PUB.format("$JS.A.wc.p1.3.1.3", "-NAK")),
    NEXT,
    Step(
        "jsm next wc p1",
        "Received response of hello\nReply: $JS.A.wc.p1.1.2.5\nAck? (Y|n) \n",
        ("",),
    ),
    Step(
        "jsm add-obs",
        "Enter the following information\nMessage Set Name: wc\nDurable Name: p2\nPush or Pull: push\n"
        "Delivery Subject: d.p2\nDeliver All? (Y|n): \nAckPolicy (None|all|explicit): \n"
        "Replay Policy (Instant|original): \n" + OK,
        ("wc", "p2", "push", "d.p2", "", "", ""),
    ),
]
BEHIND_2019 = [
    Step("jsm ls-obs wc", "\n1) p1\n2) p2\n\n"),
    Step("jsm info wc p1", "Received response of {…"),
    Step("jsm rm-msg wc 1", OK),
    Step("jsm RMMSG wc 1", 'Received response of "-ERR sequence [1] not found"\n', status=1),
    Step("jsm rm-obs wc p1", OK),
    Step("jsm info-obs wc p1", "Received response of -ERR observable not found\n", status=1),
    Step("jsm purge wc", OK),
    Step("jsm rm wc", OK),
    Step("jsm ls", "\nNone\n\n"),
]
INFO_OF_LOGS = """Information for Stream LOGS

Configuration:

             Subjects: logs.>
     Acknowledgements: true
            Retention: File - Limits
             Replicas: 1
     Maximum Messages: unlimited
        Maximum Bytes: {}
          Maximum Age: 1d0h0m0s
 Maximum Message Size: unlimited
    Maximum Consumers: unlimited

State:

            Messages: 0
               Bytes: 0 B
            FirstSeq: 0
             LastSeq: 0
    Active Consumers: {}

"""
LOGS = """{
  "name": "LOGS",
  "subjects": [
    "logs.>"
  ],
  "retention": "limits",
  "max_consumers": -1,
  "max_msgs": -1,
  "max_bytes": -1,
  "max_age": 86400000000000,
  "max_msg_size": -1,
  "storage": "file",
  "num_replicas": 1
}"""
STATE = """{
    "messages": 0,
    "bytes": 0,
    "first_seq": 0,
    "last_seq": 0,
    "consumer_count": 0
  }"""
TAIL = """{
  "stream_name": "LOGS",
  "config": {
    "delivery_subject": "out.tail",
    "durable_name": "TAIL",
    "start_time": "0001-01-01T00:00:00Z",
    "deliver_all": true,
    "ack_policy": "none",
    "max_deliver": -1,
    "replay_policy": "instant"
  }
}
"""
SENDING = "…:…:… Sending request on [{}]\n…:…:… Received on [_INBOX.…]: '{}'\n"
ADD_LOGS = (
    'nats str add LOGS --subjects "logs.>" --storage file --retention limits --max-msgs=-1 '
    "--max-bytes=-1 --max-age 1d --max-msg-size=-1"
)
OF_2020 = [
    Step("nats req '$JS.ENABLED' '.'", SENDING.format("$JS.ENABLED", "+OK")),
    Step(
        "nats req '$JS.INFO' '.'",
        SENDING.format(
            "$JS.INFO",
            '{\n  "memory": 0,\n  "storage": 0,\n  "streams": 0,\n  "limits": {\n    "max_memory": …,\n'
            '    "max_storage": …,\n    "max_streams": -1,\n    "max_consumers": -1\n  }\n}',
        ),
    ),
    Step(ADD_LOGS, "Stream LOGS was created\n\n" + INFO_OF_LOGS.format("unlimited", 0)),
    Step(
        "nats stream info LOGS -j",
        '{\n  "config": ' + LOGS.replace("\n", "\n  ") + ',\n  "state": ' + STATE + "\n}\n",
    ),
    Step("nats stream rm LOGS -f", ""),
    Step(
        "nats stream info LOGS",
        "nats: error: could not pick a Stream to operate on: no Streams are defined\n",
        status=1,
    ),
    Step("cat LOGS.json", LOGS + "\n"),
    Step(
        "cat LOGS.json | nats req '$JS.STREAM.LOGS.CREATE'",
        "…:…:… Reading payload from STDIN\n" + SENDING.format("$JS.STREAM.LOGS.CREATE", "+OK"),
    ),
    Step("nats str info LOGS", INFO_OF_LOGS.format("unlimited", 0)),
    Step("cat LOGS_TAIL.json", TAIL),
    Step(
        "cat LOGS_TAIL.json|nats request '$JS.STREAM.LOGS.CONSUMER.TAIL.CREATE'",
        "…:…:… Reading payload from STDIN\n"
        + SENDING.format("$JS.STREAM.LOGS.CONSUMER.TAIL.CREATE", "+OK"),
    ),
    Step("nats consumer info LOGS TAIL -j> LOGS_TAIL.json", ""),
    Step("nats consumer rm LOGS TAIL -f", ""),
    Step("nats consumer create --config LOGS_TAIL.json", "Information for Consumer LOGS > TAIL\n…"),
    Step("""sed -i 's/"max_bytes": -1/"max_bytes": 10737418240/' LOGS.json""", ""),
    Step(
        "nats stream edit LOGS --config LOGS.json",
        """Differences (-old +new):
  server.StreamConfig{
        ... // 3 identical fields
        MaxConsumers: -1,
        MaxMsgs:      -1,
-       MaxBytes:     -1,
+       MaxBytes:     10737418240,
        MaxAge:       s"24h0m0s",
        MaxMsgSize:   -1,
        ... // 4 identical fields
  }
? Really edit Stream LOGS (y/N) y
…? Really edit Stream LOGS Yes
Stream LOGS was updated

"""
        + INFO_OF_LOGS.format("10 GiB", 1),
        ("y",),
    ),
    Step("nats stream edit LOGS --config LOGS.json", "No difference in configuration\n"),
]
OF_2021 = [
    Step(
        "nats str add EVENTS --config configs/jetstream.json",
        "Stream EVENTS was created\n\n…Subjects: plgd.>\n…",
    ),
    Step("pelton validate event-streams.yaml", "event-streams.yaml:7:3: stream events\n…"),
]
COMMENTED = """{
  "name": "EVENTS", // comments are read over
  "subjects": [ // here, too
    "plgd.>"
  ],
  "retention": "limits", "max_consumers": -1, "max_msgs_per_subject": 0, "max_msgs": -1,
  "max_bytes": -1,  // -1 for unlimited
  "max_age": 0, "max_msg_size": -1, "storage": "file", "discard": "old", "num_replicas": 1,
  "duplicate_window": 600000000000 // nanoseconds
}
"""
MANIFEST = """---
apiVersion: jetstream.nats.io/v1beta1
kind: Stream
metadata:
  name: events
spec:
  name: events
  subjects: ["plgd.>"]
"""
CONFIGURED = """
jetstream: {
  store_dir: "$JETSTREAM_PATH"
  // 1GB of memory
  max_memory_store: 1073741824

  // 10GB of memory
  max_file_store: 10737418240
}
"""
STARTED_BY_TESTS = (
    "nats-server -js",
    "nats-server -js -sd /tmp/test",
    "nats-server -c nats.config",
    "nats-sub d.p2",
    'nats-pub foo "hello jetsream"',
)
NOT_OURS = ("git ", "cd ", "go ", "docker ", "kubectl ", "helm ", "brew ")


def matches(pattern: str, text: str) -> bool:
    parts = [re.escape(part) for part in pattern.split("…")]
    return re.fullmatch(".*?".join(parts), text, re.DOTALL) is not None


class Terminal:
    """Runs commands in a pseudo-terminal with the tools in PATH, in a folder of their own."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        home = Path(sys.executable).parent
        self.env = os.environ | {
            "NATS_URL": url,
            "PATH": f"{folder / 'bin'}:{home}:{os.environ['PATH']}",
            "TERM": "dumb",
            "XDG_CONFIG_HOME": str(folder),
        }
        assert pelton(["shims", str(folder / "bin")]) == 0

    def start(self, command: str) -> tuple[subprocess.Popen[bytes], int]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            ["sh", "-c", command],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
        )
        os.close(theirs)
        return process, ours

    def read(self, end: int, upto: str = "") -> str:
        """What the terminal shows, until that matches `upto` at its end, or until it closes."""
        shown = ""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (upto and re.search(rf"(?:{upto})\Z", shown)):
            ready, _, _ = select.select([end], [], [], max(deadline - time.monotonic(), 0))
            assert ready, f"waited in vain, shown so far: {shown}"
            data = b""
            with contextlib.suppress(OSError):  # the other end is closed
                data = os.read(end, 65536)
            if not data:
                break
            shown += data.decode().replace("\r\n", "\n")
        return shown

    def run(self, command: str, answers: tuple[str, ...] = ()) -> tuple[int, str]:
        """Exit status, and all that the terminal shows; each answer is typed behind a prompt."""
        process, end = self.start(command)
        shown = ""
        try:
            for answer in answers:
                shown += self.read(end, r"[:)] ")
                os.write(end, answer.encode() + b"\n")
            shown += self.read(end)
            return process.wait(PATIENCE_SECONDS), shown
        finally:
            process.kill()
            process.wait()
            os.close(end)


@pytest.fixture
def server() -> Iterator[LocalServer]:
    with LocalServer() as local:
        yield local


@pytest.fixture
def terminal(server: LocalServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Terminal:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "jetstream.json").write_text(COMMENTED)
    (tmp_path / "event-streams.yaml").write_text(MANIFEST)
    (tmp_path / "LOGS.json").write_text(LOGS + "\n")
    (tmp_path / "LOGS_TAIL.json").write_text(TAIL)
    made = Terminal(tmp_path, server.url)
    capsys.readouterr()
    return made


def follow(
    terminal: Terminal,
    steps: list[Step],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run the steps: at the terminal where they have prompts, pipes or files, else in this process."""
    monkeypatch.setenv("NATS_URL", terminal.env["NATS_URL"])
    monkeypatch.chdir(terminal.folder)
    for step in steps:
        if step.answers or re.search(r"[|>]( |\Z)|^(cat|sed|jsm -h)|\|nats", step.command):
            status, shown = terminal.run(step.command, step.answers)
        else:
            words = shlex.split(step.command)
            run = pelton if words[0] == "pelton" else shim
            status = run(words[1:] if words[0] == "pelton" else words)
            shown = "".join(capsys.readouterr())
        assert matches(step.prints, shown), (
            f"{step.command}\nprinted:\n{shown}\nexpected:\n{step.prints}"
        )
        assert status == step.status, step.command


def test_the_page_of_2019(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(terminal, OF_2019, capsys, monkeypatch)
    process, end = terminal.start("exec nats-sub d.p2")
    try:
        shown = terminal.read(end, r"\[#5\].*\n")
        listed = "".join(f"[#{n}] Received on [{n}]: 'hello'\n" for n in range(1, 6))
        assert shown == "Listening on [d.p2]\n" + listed
        follow(
            terminal,
            [Step("nats-pub foo 'hello jetsream'", PUB.format("foo", "hello jetsream"))],
            capsys,
            monkeypatch,
        )
        shown = terminal.read(end, r"\n")
        assert shown == "[#6] Received on [foo]: 'hello jetsream'\n"
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        os.close(end)
    follow(terminal, BEHIND_2019, capsys, monkeypatch)


def test_the_page_of_2020_and_the_page_of_2021(
    terminal: Terminal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(terminal, OF_2020, capsys, monkeypatch)
    follow(terminal, OF_2021, capsys, monkeypatch)
    follow(
        terminal,
        [Step(f"nats str rm {name} -f", "") for name in ("LOGS", "EVENTS")],
        capsys,
        monkeypatch,
    )


@pytest.mark.parametrize(
    ("options", "limits", "store"),
    [
        ("-js", ("… GB", "… GB"), "…"),
        ("-js -sd {0}/test", ("… GB", "… GB"), "{0}/test/jetstream"),
        ("-c nats.config", ("1.00 GB", "10.00 GB"), "…$JETSTREAM_PATH/jetstream"),
    ],
)
def test_the_server_of_the_pages(
    options: str,
    limits: tuple[str, str],
    store: str,
    terminal: Terminal,
) -> None:
    (terminal.folder / "nats.config").write_text(CONFIGURED)
    terminal.env["TMPDIR"] = str(terminal.folder)
    given = options.format(terminal.folder)
    command = f"exec nats-server {given} -a 127.0.0.1 -p {free_port()}"
    process, end = terminal.start(command)
    try:
        shown = terminal.read(end, r"Server is ready\n(?:.|\n)*")
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
        os.close(end)
    memory, disk = limits
    for line in (
        "Starting JetStream",
        f"  Max Memory:      {memory}",
        f"  Max Storage:     {disk}",
        f'  Store Directory: "{store.format(terminal.folder)}"',
        "Listening for client connections on 127.0.0.1:…",
        "Server is ready",
    ):
        whole = f"[…] …/…/… …:…:… [INF] {line}"
        assert any(matches(whole, each) for each in shown.splitlines()), (line, shown)


def test_nothing_answers_without_jetstream(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalServer(options=["-js=false"]) as bare:
        monkeypatch.setenv("NATS_URL", bare.url)
        assert shim(["nats", "req", "$JS.ENABLED", "."]) == 1
        out, err = capsys.readouterr()
        assert matches("…:…:… Sending request on [$JS.ENABLED]\n", out)
        assert err == "nats: error: nats: timeout, try --help\n"


@pytest.mark.parametrize("kind", available_servers())
def test_jsm_with_every_server(
    kind: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A server that knows no dialect gets calls of today's API."""
    with running_server(kind) as peer:
        monkeypatch.setenv("NATS_URL", peer.url)
        asked = iter(["m", "a,b", "", "memory", "m", "o", "pull", "y", "", "y"])
        monkeypatch.setattr("builtins.input", lambda question: next(asked))
        for words, part in (
            (["ls"], "None"),
            (["info", "m"], "msgset not found"),
            (["add"], "+OK"),
            (["ls"], "1) m"),
            (["add-obs"], "+OK"),
            (["ls-obs", "m"], "1) o"),
        ):
            jsm.main(words)
            assert part in "".join(capsys.readouterr()), words
        assert shim(["nats-pub", "a", "hello"]) == 0
        capsys.readouterr()
        assert jsm.main(["next", "m", "o"]) == 0
        assert "Received response of hello\n" in capsys.readouterr().out
        assert jsm.main(["rm", "m"]) == 0


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["fly"], 2, "no such command: fly;"),
        (["lss"], 2, "no such command: lss; did you mean 'ls'?"),
        (["-cred", "x", "ls"], 2, "no such option: -cred; did you mean 'creds'?"),
        (["rm"], 2, "wrong number of arguments for rm"),
        (["-x", "ls"], 2, "no such option: -x;"),
        (["-s"], 2, "-s needs a value"),
        (["-s", "nats://127.0.0.1:1", "ls"], 1, "jsm: "),
    ],
)
def test_wrong_usage_of_jsm(
    words: list[str], status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert jsm.main(words) == status
    assert text in capsys.readouterr().err


def test_answers_that_jsm_refuses_change_nothing(
    server: LocalServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NATS_URL", server.url)
    for answers, text in (
        (["x", "x", "1 2 3 4", ""], "invalid limits '1 2 3 4': more than three"),
        (["x", "x", "a b", ""], "invalid limits 'a b'; expected for example \"-1 -1 1m\""),
        (["x", "x", "-1 -1 300y", ""], "is too long (maximum 292y)"),
        (["x", "x", "-1 -1 1q", ""], "invalid age '1q'"),
    ):
        asked = iter(answers)
        monkeypatch.setattr("builtins.input", lambda question, asked=asked: next(asked))
        assert jsm.main(["add"]) == 1
        assert text in capsys.readouterr().err
    jsm.main(["ls"])
    assert "x" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[LocalServer, LocalServer]]:
    with LocalServer() as first, LocalServer() as second:
        yield first, second


@pytest.fixture
def two_servers(
    running: tuple[LocalServer, LocalServer],
) -> Iterator[tuple[LocalServer, LocalServer]]:
    """Two servers without streams."""
    yield running
    for each in running:
        with connect(each.url) as client:
            js = client.jetstream()
            for name in js.stream_names():
                js.delete_stream(name)


SHARED = {
    "stream add": "N --subjects n --defaults",
    "stream edit": "LOGS --max-msgs 7 -f",
    "stream info": "LOGS",
    "stream rm": "LOGS -f",
    "consumer info": "LOGS C",
    "consumer rm": "LOGS C -f",
    "consumer add": "LOGS D --config {0}",
    "req": "echo hi --no-wait",
}
"""Commands whose texts are those of 2020, with words that are enough for them."""


@pytest.mark.parametrize("command", SHARED)
def test_the_server_of_the_command_line_is_used(
    command: str,
    two_servers: tuple[LocalServer, LocalServer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before, behind and through a context; the other server, of NATS_URL, stays as it was."""
    ours, other = two_servers
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    file = tmp_path / "consumer.json"
    file.write_text('{"durable_name": "D", "ack_policy": "explicit"}')
    words = [*command.split(), *SHARED[command].format(file).split()]
    assert shim(["nats", "context", "add", "ours", "--server", ours.url]) == 0
    monkeypatch.setenv("NATS_URL", other.url)
    for given in (["--server", ours.url, *words], [*words, "-s", ours.url]):
        with connect(ours.url) as mine, connect(other.url) as not_mine:
            for client in (mine, not_mine):
                client.jetstream().create_stream(StreamConfig(name="LOGS", subjects=["logs"]))
                client.jetstream().create_consumer("LOGS", ConsumerConfig(durable_name="C"))
            before = _everything(not_mine)
            heard = mine.subscribe("echo")
            mine.flush()
            assert shim(["nats", *given]) == 0, capsys.readouterr()
            if command == "req":
                assert heard.next(PATIENCE_SECONDS).data == b"hi"
            assert _everything(not_mine) == before
            for client in (mine, not_mine):
                for name in client.jetstream().stream_names():
                    client.jetstream().delete_stream(name)


def _everything(client: Client) -> list[object]:
    js = client.jetstream()
    return [
        (each.config, [c.config for c in js.consumers(each.config.name)]) for each in js.streams()
    ]


@pytest.mark.parametrize("command", SHARED)
def test_a_flag_or_a_name_that_is_unknown_changes_nothing(
    command: str,
    two_servers: tuple[LocalServer, LocalServer],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, _ = two_servers
    monkeypatch.setenv("NATS_URL", server.url)
    file = tmp_path / "consumer.json"
    file.write_text('{"durable_name": "D", "ack_policy": "explicit"}')
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="LOGS", subjects=["logs"]))
        js.create_consumer("LOGS", ConsumerConfig(durable_name="C"))
        before = _everything(client)
        for flaw in ("--typo 7", "--typo=7", "-y", "TWO TOO MANY"):
            words = [*command.split(), *SHARED[command].format(file).split(), *flaw.split()]
            assert shim(["nats", *words]) != 0, flaw
            assert "nats: error: " in capsys.readouterr().err
            assert _everything(client) == before, flaw


def test_all_flags_of_the_command_are_those_of_pelton(
    two_servers: tuple[LocalServer, LocalServer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server, _ = two_servers
    monkeypatch.setenv("NATS_URL", server.url)
    with connect(server.url) as client:
        js = client.jetstream()
        words = "N --subjects n,m --max-msgs-per-subject 5 --max-age 1w --allow-rollup --defaults"
        assert shim(["nats", "stream", "add", *words.split()]) == 0
        assert capsys.readouterr().out.startswith(
            "Stream N was created\n\nInformation for Stream N\n"
        )
        config = js.stream_info("N").config
        assert (config.max_msgs_per_subject, config.allow_rollup_hdrs) == (5, True)
        assert shim(["nats", "str", "edit", "N", "--max-msgs", "9", "--dry-run"]) == 1
        assert "+       MaxMsgs:      9,\n" in capsys.readouterr().out
        assert js.stream_info("N").config == config
        assert shim(["nats", "str", "edit", "N", "--max-msgs", "9", "-f"]) == 0
        assert js.stream_info("N").config.max_msgs == 9
        js.delete_stream("N")


@pytest.mark.parametrize(
    "words",
    [
        ["rm", "-s", "{0}", "m"],
        ["rm", "m", "-s", "{0}"],
        ["rm", "m", "-creds", "none.creds"],
        ["info", "m", "-x"],
        ["info", "-x"],
        ["purge", "-m"],
    ],
)
def test_jsm_reads_options_wherever_they_are(
    words: list[str],
    two_servers: tuple[LocalServer, LocalServer],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, other = two_servers
    monkeypatch.setenv("NATS_URL", other.url)
    with connect(ours.url) as mine, connect(other.url) as not_mine:
        for client in (mine, not_mine):
            client.jetstream().create_stream(StreamConfig(name="m"))
        status = jsm.main([each.format(ours.url) for each in words])
        assert not_mine.jetstream().stream_names() == ["m"]
        if "-s" in words:
            assert status == 0
            assert mine.jetstream().stream_names() == []
        else:
            assert status != 0
            assert mine.jetstream().stream_names() == ["m"]
    capsys.readouterr()


def test_shims_leave_other_programs_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "nats").write_text("another program")
    assert pelton(["shims", str(tmp_path)]) == 1
    assert f"{tmp_path / 'nats'} is another program" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["nats"]
    assert pelton(["shims", str(tmp_path), "--force"]) == 0
    assert pelton(["shims", str(tmp_path)]) == 0
    out = subprocess.run(
        [tmp_path / "nats-server", "--version"], capture_output=True, text=True, check=False
    )
    assert out.returncode == 0


def test_figures_in_the_forms_of_that_time() -> None:
    assert [jsm.size(n) for n in (76, 161_000_098, 1 << 40)] == ["76 B", "161 MB", "1.1 TB"]
    assert [pages.size(n) for n in (0, 1536, 10 << 30)] == ["0 B", "1.5 KiB", "10 GiB"]
    assert pages.age(86_400 * 10**9) == "1d0h0m0s"
    minute, month = 60 * 10**9, 30 * 86_400 * 10**9
    assert (jsm.age_of("1m"), jsm.age_of("1M"), jsm.age_of("-1")) == (minute, month, 0)
    assert jsm.subjects_of("foo, bar, baz.*") == ["foo", "bar", "baz.*"]
    assert core_tools.shares(10, 3) == [4, 3, 3]


def commands_of(text: str) -> list[str]:
    """The commands of a page: lines behind a prompt in blocks, and lines with a tool's name."""
    joined = text.replace("\\\n", " ")
    found = re.findall(r"^\s*[><$] {1,2}(\S.*)$", joined, re.MULTILINE)
    found += re.findall(
        r"^\s*((?:nats(?:-server)? |docker |kubectl |helm ).*)$", joined, re.MULTILINE
    )
    return [re.sub(r"\s+", " ", each).strip() for each in found]


def test_no_command_of_the_pages_is_missing() -> None:
    folder = os.environ.get("PELTON_SEEDS", "")
    if not folder:
        pytest.skip("the pages are not here: $PELTON_SEEDS is their folder")
    steps = [*OF_2019, *BEHIND_2019, *OF_2020, *OF_2021]
    known = {step.command for step in steps} | set(STARTED_BY_TESTS)
    known |= {"nats-bench -np 20 -ns 0 -ms 128 -n 1000000 foo", "next wc p1"}
    known |= {"nats str add EVENTS --config /configs/jetstream.json"}
    known = {each.replace(" |", "|").replace("| ", "|") for each in known}
    for page in sorted(Path(folder).glob("00[123]*")):
        commands = commands_of(page.read_text())
        assert commands, page
        for each in commands:
            said = each.replace(" |", "|").replace("| ", "|")
            assert said in known or said.startswith(NOT_OURS), (page.name, each)
