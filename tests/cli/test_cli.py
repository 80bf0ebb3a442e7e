"""The command line against a running server: what it prints for people, for pipes and programs, and
what it says when something is wrong.
"""

import io
import json
import os
import re
import subprocess
import sys

import pytest

from pelton.cli.__main__ import main
from pelton.sync import connect
from pelton.testing import LocalServer


@pytest.fixture(scope="module")
def server():
    with LocalServer() as local:
        yield local


@pytest.fixture
def run(server, capsys, monkeypatch):
    """Run a command line in this process: (exit status, stdout, stderr)."""
    monkeypatch.setenv("NATS_URL", server.url)

    def run_it(*arguments, stdin=None):
        if stdin is not None:
            reader = io.TextIOWrapper(io.BytesIO(stdin))
            monkeypatch.setattr(sys, "stdin", reader)
        capsys.readouterr()
        status = main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run_it


@pytest.fixture
def stream(run, request):
    """A stream of this test's own, with three messages."""
    name = f"S{abs(hash(request.node.nodeid)) % 10**9}"
    assert run("stream", "add", name, "--subjects", f"{name}.>")[0] == 0
    for each in ("one", "two", "three"):
        assert run("pub", "-J", f"{name}.a", each)[0] == 0
    yield name
    run("stream", "rm", "-f", name)


def test_a_stream_from_birth_to_death(run):
    status, out, _ = run("stream", "add", "LIFE", "--subjects", "l.a,l.b", "--max-age", "7d")
    assert status == 0
    assert "Subjects: l.a, l.b" in out
    assert "Max age: 168h0m0s" in out
    status, out, _ = run("pub", "--id", "1", "l.a", "hello")
    assert out == "stored in LIFE at sequence 1\n"
    assert run("pub", "--id", "1", "l.a", "hello")[1].endswith("sequence 1 (duplicate)\n")
    assert "LIFE" in run("stream", "ls")[1]
    assert run("stream", "ls", "--names", "--subject", "l.b")[1] == "LIFE\n"
    assert "Messages: 1" in run("stream", "info", "LIFE")[1]
    assert run("stream", "get", "LIFE", 1)[1].endswith("\nhello\n")
    assert run("stream", "purge", "-f", "LIFE")[1] == "removed 1 message of stream LIFE\n"
    assert run("stream", "rm", "-f", "LIFE")[1] == "removed stream LIFE\n"
    status, _, err = run("stream", "info", "LIFE")
    assert (status, err) == (1, "pelton: stream not found (10059)\n")


def test_what_the_server_refuses_is_not_said_to_be_done(capsys, monkeypatch, tmp_path):
    config = tmp_path / "server.conf"
    rules = 'permissions: { publish: "may.>", subscribe: "may.>" }'
    config.write_text(f"authorization {{ users: [ {{ user: a, password: b, {rules} }} ] }}\n")
    with LocalServer(options=["-c", str(config)]) as local:
        monkeypatch.setenv("NATS_URL", local.url.replace("nats://", "nats://a:b@"))
        for arguments, verb in (
            (["pub", "not.this", "x"], "Publish"),
            (["sub", "not.this", "--wait", "1s"], "Subscription"),
        ):
            assert main(arguments) == 1
            out, err = capsys.readouterr()
            assert out == ""
            assert f'Permissions Violation for {verb} to "not.this"' in err
        assert main(["pub", "may.this", "x"]) == 0
        assert capsys.readouterr().out == "published 1 message of 1 bytes to may.this\n"


def test_limits_reach_the_server(run, server):
    options = (
        "--max-msgs 5 --max-bytes 1MB --max-msg-size 1k --max-msgs-per-subject 2 --discard new"
    )
    options += (
        " --storage memory --dupe-window 30s --max-consumers 3 --description d --allow-direct"
    )
    assert run("stream", "add", "LIMITS", *options.split())[0] == 0
    with connect(server.url) as nc:
        config = nc.jetstream().stream_info("LIMITS").config
    assert (config.max_msgs, config.max_bytes, config.max_msg_size) == (5, 2**20, 1024)
    assert (config.max_msgs_per_subject, config.discard, config.storage) == (2, "new", "memory")
    assert (config.duplicate_window, config.max_consumers) == (30_000_000_000, 3)
    assert (config.description, config.allow_direct, config.subjects) == ("d", True, ["LIMITS"])
    run("stream", "rm", "-f", "LIMITS")


def test_json_for_programs_before_and_after_the_command(run, stream):
    for arguments in (
        ("--json", "stream", "info", stream),
        ("stream", "info", stream, "--json"),
        ("stream", "info", stream, "-j"),
    ):
        found = json.loads(run(*arguments)[1])
        assert found["config"]["name"] == stream
        assert found["state"]["messages"] == 3
    assert stream in json.loads(run("stream", "ls", "--json")[1])
    listed = json.loads(run("stream", "report", "--json")[1])
    assert stream in [each["config"]["name"] for each in listed]
    assert json.loads(run("stream", "get", stream, 2, "--json")[1])["data"] == "two"
    assert json.loads(run("account", "info", "--json")[1])["streams"] >= 1
    assert json.loads(run("stream", "info", "NOPE", "-j")[2])["error"]["err_code"] == 10059
    assert json.loads(run("pub", "x", "y", "--json")[1]) == {"subject": "x", "count": 1, "bytes": 1}


def test_consumers_are_made_read_and_removed(run, stream):
    status, out, _ = run("consumer", "add", stream, "c", "--filter", f"{stream}.*", "--wait", "10s")
    assert status == 0
    assert "Ack wait: 10s" in out
    assert "Unprocessed: 3" in out
    status, out, _ = run("consumer", "next", stream, "c", "-n", 2)
    assert "one" in out
    assert "two" in out
    (line,) = run("consumer", "next", stream, "c", "--json")[1].splitlines()
    assert json.loads(line)["data"] == "three"
    status, _, err = run("consumer", "next", stream, "c", "--wait", "50ms")
    assert (status, err) == (1, f"pelton: no message for consumer c of stream {stream}\n")
    found = json.loads(run("consumer", "info", stream, "c", "--json")[1])
    assert (found["num_pending"], found["ack_floor"]["stream_seq"]) == (0, 3)
    assert run("consumer", "ls", stream, "--names")[1] == "c\n"
    assert "explicit" in run("consumer", "ls", stream)[1]
    assert run("consumer", "rm", "-f", stream, "c")[0] == 0
    assert json.loads(run("consumer", "ls", stream, "--json")[1]) == []


@pytest.mark.parametrize(
    ("where", "first"), [("all", "one"), ("last", "three"), ("2", "two"), ("subject", "three")]
)
def test_where_a_consumer_begins(run, stream, where, first):
    # "subject": the last of each subject; a filter is what it needs one for
    arguments = ("--deliver", where, "--filter", f"{stream}.>")
    assert run("consumer", "add", stream, "c", *arguments)[0] == 0
    assert run("consumer", "next", stream, "c", "--raw", "--no-ack")[1] == f"{first}\n"


def test_payloads_come_from_standard_input_and_go_out_as_they_are(run, stream):
    data = b"\x00\xff\x1b[31m\n"
    assert run("pub", "-J", f"{stream}.b", stdin=data)[0] == 0
    found = json.loads(run("stream", "get", stream, "--last-for", f"{stream}.b", "--json")[1])
    assert found["data_base64"] == "AP8bWzMxbQo="
    shown = run("stream", "get", stream, "4")[1]
    assert "\x1b" not in shown
    assert "\\x1b[31m" in shown


def test_headers_go_there_and_back(run, stream):
    run("pub", "-J", f"{stream}.h", "x", "-H", "Color: red", "-H", "Color:blue", "-H", "A: b:c")
    found = json.loads(run("stream", "get", stream, "4", "--json")[1])
    assert found["headers"] == {"Color": ["red", "blue"], "A": ["b:c"]}


def test_subscribe_and_request(server):
    """Two processes talk: one subscribes, this one publishes."""
    command = [sys.executable, "-m", "pelton.cli", "-s", server.url, "sub", "talk.>", "-n", "2"]
    child = subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with connect(server.url) as nc:
        lines = []
        while len(lines) < 2:
            # it may not have subscribed yet: say it until it is heard
            nc.publish("talk.a", b"hi", headers={"A": "b"})
            nc.publish("talk.b", b"\xff", reply="back")
            nc.flush()
            if child.poll() is not None:
                lines = child.stdout.read().splitlines()
                break
    assert child.wait(20) == 0
    first, second = (json.loads(line) for line in lines)
    assert {first["subject"], second["subject"]} == {"talk.a", "talk.b"}
    by_subject = {each["subject"]: each for each in (first, second)}
    assert by_subject["talk.a"]["headers"] == {"A": ["b"]}
    assert by_subject["talk.b"]["data_base64"] == "/w=="
    child.stdout.close()
    child.stderr.close()


def test_sub_ends_when_nothing_comes(run):
    assert run("sub", "silence", "--wait", "20ms")[:2] == (0, "")


def test_request_prints_the_answer(run):
    status, out, _ = run("req", "$JS.API.INFO", "", "--raw")
    assert status == 0
    assert json.loads(out)["type"] == "io.nats.jetstream.api.v1.account_info_response"
    out = run("--json", "req", "$JS.API.INFO", "")[1]
    assert json.loads(json.loads(out)["data"])["api"]["level"] >= 1


@pytest.mark.parametrize(
    ("expected", "line", "text"),
    [
        (2, "bogus", "No such command 'bogus'"),
        (2, "stream bogus", "No such command 'bogus'; see pelton stream --help"),
        (2, "stream add", "Missing argument 'NAME'; see pelton stream add --help"),
        (2, "stream ls --bogus", "No such option '--bogus'"),
        (
            2,
            "stream add X --max-msgs 99999999999999999999",
            "out of range (maximum 9223372036854775807)",
        ),
        (2, "stream add X --max-consumers -99999999999999999999", "(minimum -9223372036854775808)"),
        (2, "stream add X --max-msg-size 9999999999", "is too large (maximum 2147483647 bytes)"),
        (2, "stream add X --max-bytes 9E", "is too large (maximum 9223372036854775807 bytes)"),
        (2, "stream add X --max-age 300y", '"300y" is too long (maximum 292y)'),
        (2, "stream add X --replicas 2.5", "'2.5' is not a whole number"),
        (2, "consumer add X C --backoff linear --backoff-max 300y", '"300y" is too long'),
        (2, "kv add X --max-value-size 3G", "is too large (maximum 2147483647 bytes)"),
        (2, "events --all --filter " + "(" * 3000, "recursion"),
        (2, "stream add X --max-age soon", '"soon" is not a duration'),
        (2, "stream add X --max-bytes much", '"much" is not a size'),
        (2, "stream add X --storage tape", "'tape' is not one of file, memory; see"),
        (
            2,
            "stream add X --storage fiel",
            "'fiel' is not one of file, memory; did you mean 'file'?",
        ),
        (2, "stream add X --retention work_queue", "did you mean 'workqueue'?"),
        (2, "stream add a.b", "must not be empty nor have blanks"),
        (1, "stream info NOPE", "stream not found (10059)"),
        (2, "stream get X", "give a sequence or --last-for"),
        (2, "stream purge X -f --seq 0", "0 is out of range (minimum 1)"),
        (1, "consumer info NOPE c", "not found"),
        (1, "consumer next NOPE c", "stream not found"),
        (2, "consumer add X c --deliver never", '"never" is no place to begin at'),
        (2, "pub a..b x", "cannot publish to 'a..b'"),
        (2, "pub a x -H nocolon", '"nocolon" is not a header'),
        (2, "pub a x -J --reply b", "exclude each other"),
        (1, "req nobody.there x", "nobody answers on nobody.there"),
        (1, "pub -J nobody.there x", "on nobody.there: no stream stores this subject"),
        (2, "-s ftp://x stream ls", "expected nats://, tls://, ws:// or wss://"),
        (1, "-s nats://127.0.0.1:1 stream ls", "cannot connect: nats://127.0.0.1:1"),
        (2, "--timeout x stream ls", "is not a duration"),
        (2, "--user a --token b stream ls", "give user and password, or a token, not both"),
    ],
)
def test_a_mistake_is_told_in_one_line(run, expected, line, text):
    status, _, err = run(*line.split())
    assert status == expected
    assert err.count("\n") == 1
    assert err.startswith("pelton: ")
    assert text in err
    # for programs, the same as an object
    status, out, err = run("--json", *line.split())
    assert (status, out) == (expected, "")
    assert text in json.loads(err)["error"]["message"]
    assert json.loads(err)["error"]["status"] == expected


def test_removing_asks_first(run, stream):
    status, _, _ = run("stream", "rm", stream, stdin=b"n\n")
    assert status == 130
    assert run("stream", "info", stream)[0] == 0
    assert run("stream", "rm", stream, stdin=b"y\n")[0] == 0


def test_help_lists_everything_and_loads_nothing():
    code = (
        "import sys; from pelton.cli.__main__ import main; main(['--help']);"
        "print([m for m in ('rich', 'pelton.client', 'pelton.engine', 'pelton.server',"
        " 'msgspec', 'asyncio', 'pyspark') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip().endswith("[]")
    for name in ("run", "server", "pub", "sub", "req", "stream", "consumer", "account", "kv",
                 "object", "context", "service", "counter", "rtt", "errors"):  # fmt: skip
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize(
    "group",
    ["stream", "consumer", "account", "kv", "object", "context", "service", "counter", "errors"],
)
def test_every_command_has_help(run, group):
    from pelton.cli import commands

    for name in getattr(commands, group.upper()):
        status, out, _ = run(group, name, "--help")
        assert status == 0
        assert "--json" in out or getattr(commands, group.upper())[name][1] == "tree"


@pytest.mark.parametrize(
    "group",
    [
        *(
            ("server", name)
            for name in ("report", "request", "watch", "account", "cluster", "config")
        ),
        *(("auth", name) for name in ("operator", "account", "user", "nkey")),
        *(("auth", "account", name) for name in ("keys", "exports", "imports", "mappings")),
        ("auth", "operator", "keys"),
        ("audit",),
        ("schema",),
        ("account", "report"),
    ],
)
def test_every_command_of_a_group_in_a_group_has_help(run, group):
    from pelton.cli import commands

    for name in getattr(commands, "_".join(group).upper()):
        status, out, _ = run(*group, name, "--help")
        assert status == 0
        assert "--json" in out or getattr(commands, "_".join(group).upper())[name][1] == "tree"


@pytest.mark.parametrize(
    ("words", "canonical"),
    [(("str", "list"), ("stream", "ls")), (("con", "nfo"), ("consumer", "info"))],
)
def test_other_names_lead_to_the_same_command(run, words, canonical):
    first, second = run(*words, "--help")[1], run(*canonical, "--help")[1]
    assert first.split("\n", 1)[1] == second.split("\n", 1)[1]


def test_other_names_belong_to_commands():
    from pelton.cli import commands, other_names

    for group, names in other_names.ALIASES.items():
        rows = commands.TOP if group == "pelton" else getattr(commands, group.upper())
        assert set(names.values()) <= set(rows), group
        assert not set(names) & set(rows), group


def test_a_shell_completes_commands_and_options():
    def completed(words, index):
        env = {**os.environ, "_PELTON_COMPLETE": "bash_complete"}
        env |= {"COMP_WORDS": words, "COMP_CWORD": str(index)}
        command = [sys.executable, "-c", "from pelton.cli.__main__ import main; main([])"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        return {line.partition(",")[2] for line in done.stdout.splitlines()}

    assert completed("pelton str", 1) == {"stream"}
    assert completed("pelton kv pu", 2) == {"put", "purge"}
    assert "--marker-ttl" in completed("pelton kv add --mark", 3)


def test_serve_is_the_server_program(run):
    status, _, err = run("serve", "--bogus")
    assert status == 2
    assert err == "pelton serve: unknown option --bogus; see pelton serve --help\n"
    assert run("serve", "--version")[1].startswith("nats-server: v")
    assert run("--no-context", "serve", "--version")[1].startswith("nats-server: v")


def test_a_reader_that_has_had_enough_gets_no_complaint(server):
    child = subprocess.Popen(
        [sys.executable, "-m", "pelton.cli", "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    child.stdout.close()
    assert child.stderr.read() == b""
    assert child.wait(20) in (0, 1)
    child.stderr.close()


def in_a_terminal(columns, *arguments):
    """What a command prints in a pseudo terminal of that width, without the colours."""
    import pty

    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pelton.cli", *arguments],
        stdout=child,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": str(columns)},
    )
    os.close(child)
    text = b""
    while True:
        try:
            data = os.read(parent, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(parent)
    assert process.wait(20) == 0
    assert b"\x1b[" in text
    return re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()


def test_a_terminal_gets_a_table(server, run, stream):
    """In a pseudo terminal rich draws; elsewhere it is not even loaded."""
    lines = in_a_terminal(200, "-s", server.url, "stream", "ls")
    assert any(set(line.strip()) == {"─"} for line in lines)
    assert any(line.startswith(f"{stream} ") for line in lines)


def test_a_narrow_terminal_shows_every_column_whole(server, run):
    name, subject = "A_STREAM_WITH_A_RATHER_LONG_NAME", "orders.europe.germany.berlin.>"
    assert run("stream", "add", name, "--subjects", subject)[0] == 0
    assert run("pub", "-J", "orders.europe.germany.berlin.x", "y")[0] == 0
    assert run("consumer", "add", name, "a-consumer-with-a-long-name")[0] == 0
    for arguments, last, cell in (
        (("stream", "ls"), "Last", r"\d+[smhd]"),
        (("consumer", "ls", name), "Floor", "0"),
    ):
        lines = in_a_terminal(80, "-s", server.url, *arguments)
        assert all(len(line) <= 80 for line in lines), lines
        assert any(line.rstrip().endswith(last) for line in lines), lines
        assert any(re.search(rf" {cell}\s*$", line) for line in lines), lines
        assert not any("…" in line for line in lines), lines
    assert run("stream", "rm", "-f", name)[0] == 0


def test_ages_have_two_units():
    from pelton.cli.output import age

    def of(seconds):
        return age(10**18, 10**18 + seconds * 10**9)

    assert [of(each) for each in (0, 59, 60, 61, 3600, 90_061, 31_536_000)] == [
        "0s", "59s", "1m", "1m1s", "1h", "1d1h", "1y"
    ]  # fmt: skip
    assert age(0, 1) == "never"
    assert of(-5) == "0s"
