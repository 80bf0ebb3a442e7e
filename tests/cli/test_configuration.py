"""``pelton validate``, ``plan``, ``apply`` and ``export`` against a running server."""

import io
import json
import os
import sys

import pytest

from pelton import StreamConfig
from pelton.cli.__main__ import main
from pelton.sync import connect
from tests.copies.local import LocalServer
from tests.peers import available_servers
from tests.server.configured import configured

LOGS = '{"name": "LOGS", "subjects": ["logs.>"]} // all of them\n'


@pytest.fixture(scope="module")
def server():
    with LocalServer() as local:
        yield local


@pytest.fixture
def jetstream(server):
    with connect(server.url) as client:
        found = client.jetstream()
        for name in found.stream_names():
            found.delete_stream(name)
        yield found


@pytest.fixture
def run(server, capsys, monkeypatch, tmp_path):
    """Run a command line in this process, in a folder of its own: (exit status, stdout, stderr)."""
    monkeypatch.setenv("NATS_URL", server.url)
    monkeypatch.chdir(tmp_path)

    def run_it(*arguments, stdin=""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        capsys.readouterr()
        status = main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run_it


def test_plan_and_apply_say_by_their_status_what_there_is_to_do(run, jetstream, tmp_path):
    (tmp_path / "logs.json").write_text(LOGS)
    status, out, _ = run("plan", "logs.json")
    assert (status, out.splitlines()[0]) == (2, "  + create stream LOGS  (logs.json:1:1)")
    assert jetstream.stream_names() == []
    status, out, _ = run("apply", "--yes", "logs.json")
    assert (status, out.splitlines()[-1]) == (0, "created stream LOGS")
    assert run("plan", "logs.json")[:2] == (0, "Plan: nothing to do; 1 as declared.\n")
    assert run("diff", "logs.json")[0] == 0


def test_apply_asks_and_takes_no_for_an_answer(run, jetstream, tmp_path):
    (tmp_path / "logs.json").write_text(LOGS)
    assert run("apply", "logs.json", stdin="n\n")[0] == 130
    assert jetstream.stream_names() == []
    assert run("apply", "logs.json", stdin="y\n")[0] == 0
    assert jetstream.stream_names() == ["LOGS"]


def test_data_is_lost_only_with_leave(run, jetstream, tmp_path):
    (tmp_path / "logs.json").write_text(LOGS)
    run("apply", "--yes", "logs.json")
    run("pub", "-J", "logs.a", "one")
    (tmp_path / "logs.json").write_text(LOGS.replace("}", ', "storage": "memory"}'))
    status, _, err = run("apply", "--yes", "logs.json")
    said = "pelton: replace stream LOGS loses 1 message; --allow-data-loss does it\n"
    assert (status, err) == (1, said)
    assert jetstream.stream_info("LOGS").state.messages == 1
    assert run("apply", "--yes", "--allow-data-loss", "logs.json")[0] == 0
    assert jetstream.stream_info("LOGS").config.storage == "memory"


def test_a_mistake_anywhere_changes_nothing(run, jetstream, tmp_path):
    (tmp_path / "a.json").write_text(LOGS)
    (tmp_path / "b.yaml").write_text("name: B\nmax_mgs: 5\n")
    status, out, err = run("apply", "--yes", ".")
    assert (status, out) == (1, "")
    assert err == 'pelton: b.yaml:2:1: unknown key "max_mgs"; did you mean "max_msgs"?\n'
    assert run("validate", "a.json", "b.yaml")[0] == 1
    assert jetstream.stream_names() == []
    status, _, err = run("--json", "plan", "b.yaml")
    assert (status, len(json.loads(err)["error"]["problems"])) == (1, 1)


def test_what_the_server_refuses_ends_the_work_and_is_said(run, jetstream, tmp_path):
    """What only the server knows, here the size of its disk. The next apply goes on."""
    text = '{"streams": {"A": {}, "B": {"max_bytes": %d}, "C": {}}}'
    (tmp_path / "a.json").write_text(text % 2**60)
    status, _, err = run("apply", "--yes", "a.json")
    assert status == 1
    assert err.startswith("pelton: cannot create stream B: insufficient storage")
    assert err.endswith("; 1 of 3 changes were made\n")
    assert jetstream.stream_names() == ["A"]
    (tmp_path / "a.json").write_text(text % 1000)
    assert run("apply", "--yes", "a.json")[0] == 0
    assert jetstream.stream_names() == ["A", "B", "C"]


def test_rules_of_the_server_are_checked_before_anything_is_done(run, jetstream, tmp_path):
    """All that is wrong is reported at once."""
    streams = {
        "A": {},
        "B": {"num_replicas": 3},
        "C": {"max_age": "10ms"},
        "D": {"sources": [{"name": "D"}]},
        "E": {"subject_transform": {"src": "e.*", "dest": "f.{{wildcard(2)}}"}},
        "F": {"description": "x" * 5000},
        "G": {},
        "H" * 300: {},
    }  # fmt: skip
    consumers = [
        {"stream_name": "G", "durable_name": "d", "backoff": ["1s", "2s"], "max_deliver": 1},
        {"stream_name": "G", "durable_name": "e", "flow_control": True},
    ]
    (tmp_path / "a.json").write_text(json.dumps({"streams": streams, "consumers": consumers}))
    for words in (("plan", "a.json"), ("apply", "--yes", "a.json")):
        status, out, err = run(*words)
        assert status == 1
        said = out + err
        for name, reason in (
            ("B", "replicas > 1 not supported in non-clustered mode"),
            ("C", "max age needs to be >= 100ms"),
            ("D", "detected cycle"),
            ("E", "wildcard index out of range"),
            ("F", "stream description is too long"),
            ("H" * 300, "stream name is too long"),
        ):
            assert reason in said, (name, said)
        assert "max deliver" in said
    assert jetstream.stream_names() == []


def test_wrong_usage_is_an_error_and_not_a_change(run):
    assert run("plan")[0] == 1
    assert run("plan", "--no-such-option", "x")[0] == 1
    assert run("plan", "missing.json")[0] == 1
    assert run("apply", "--prune", "--yes", "missing.json")[0] == 1


def test_the_owners_streams_are_pruned(run, jetstream):
    two = '{"streams": {"A": {}, "B": {}}}'
    assert run("apply", "--yes", "--owner", "ci", "-", stdin=two)[0] == 0
    status, out, _ = run(
        "apply", "--yes", "--owner", "ci", "--prune", "-", stdin='{"streams": {"A": {}}}'
    )
    assert (status, out.splitlines()[-1]) == (0, "deleted stream B")
    assert jetstream.stream_info("A").config.metadata["managed-by"] == "ci"


@pytest.mark.parametrize("form", ["json", "yaml", "tf", "crd"])
def test_an_export_applied_again_does_nothing(run, jetstream, tmp_path, form):
    text = {
        "streams": {"LOGS": {"subjects": ["logs.>"], "max_age": "7d", "metadata": {"a": "b"}}},
        "consumers": {"LOGS": {"tail": {"ack_policy": "explicit", "ack_wait": "45s"}}},
        "kv": {"profiles": {"history": 5, "ttl": "1h"}},
        "objects": {"files": {"max_bytes": "10GB"}},
    }
    assert run("apply", "--yes", "-", stdin=json.dumps(text))[0] == 0
    status, out, err = run("export", "--format", form)
    assert (status, err) == (0, "")
    suffix = {"tf": "tf", "json": "json"}.get(form, "yaml")
    (tmp_path / f"all.{suffix}").write_text(out)
    assert run("plan", f"all.{suffix}")[:2] == (0, "Plan: nothing to do; 4 as declared.\n")
    some = run("export", "--format", form, "LOGS")[1]
    assert "tail" in some
    assert "profiles" not in some
    assert run("export", "NONE")[0] == 1


def test_a_plan_for_programs(run, jetstream):
    status, out, _ = run("plan", "--json", "-", stdin=LOGS)
    assert status == 2
    assert json.loads(out)["changes"][0]["stream"] == "LOGS"
    status, out, _ = run("apply", "--yes", "--json", "-", stdin=LOGS)
    assert (status, json.loads(out)["totals"]["create"]) == (0, 1)


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_an_export_of_an_empty_server_declares_nothing(run, jetstream, tmp_path, form):
    status, out, _ = run("export", "--format", form)
    assert status == 0
    (tmp_path / f"all.{form}").write_text(out)
    assert run("plan", f"all.{form}")[:2] == (0, "Plan: nothing to do.\n")


def test_nobody_answers(run, jetstream, tmp_path):
    (tmp_path / "logs.json").write_text(LOGS)
    status, _, err = run("apply", "logs.json")
    assert status == 1
    assert "there is no terminal" in err
    assert "--yes" in err
    assert jetstream.stream_names() == []
    assert run("apply", "--auto-approve", "logs.json")[0] == 0
    assert jetstream.stream_names() == ["LOGS"]


@pytest.mark.parametrize(
    "state",
    [
        {"version": 4, "terraform_version": "1.9.0", "resources": [{"module": "module.a"}]},
        {"format_version": "1.0", "values": {"root_module": {"child_modules": []}}},
    ],
)
def test_a_state_of_terraform_is_refused_by_name(run, jetstream, tmp_path, state):
    (tmp_path / "state.json").write_text(json.dumps(state))
    status, out, err = run("plan", "state.json")
    assert (status, out) == (1, "")
    assert err == (
        "pelton: state.json:1:1: this is a state or a plan of Terraform; give its .tf files instead\n"
    )


def test_of_very_many_mistakes_the_first_are_said(run, jetstream, tmp_path):
    streams = [{"name": f"S{each}", "max_mgs": 1} for each in range(400)]
    (tmp_path / "a.json").write_text(json.dumps({"streams": streams}))
    status, _, err = run("validate", "a.json")
    assert (status, err.count("\n")) == (1, 51)
    assert err.endswith("\npelton: and 350 more mistakes\n")


def test_messages_that_came_after_the_plan_are_not_lost(run, jetstream, tmp_path, monkeypatch):
    (tmp_path / "logs.json").write_text(LOGS)
    run("apply", "--yes", "logs.json")
    (tmp_path / "logs.json").write_text(LOGS.replace("}", ', "storage": "memory"}'))

    def answer(*_, **__):
        jetstream.publish("logs.a", b"one")

    monkeypatch.setattr("pelton.cli.configuration.applying.confirm", answer)
    status, _, err = run("apply", "logs.json")
    assert status == 1
    assert "1 message came since the plan was made; --allow-data-loss loses them" in err
    assert jetstream.stream_info("LOGS").state.messages == 1


def test_subjects_that_another_stream_has_are_refused_before_anything_is_done(
    run, jetstream, tmp_path
):
    jetstream.create_stream(StreamConfig(name="THERE", subjects=["logs.*"]))
    (tmp_path / "a.json").write_text('{"streams": {"A": {}, "LOGS": {"subjects": ["logs.>"]}}}')
    status, _, err = run("apply", "--yes", "a.json")
    text = 'cannot change stream LOGS: its subject "logs.>" overlaps with "logs.*" of stream THERE'
    assert (status, err) == (1, f"pelton: {text}\n")
    assert jetstream.stream_names() == ["THERE"]


@pytest.mark.parametrize("command", ["validate", "plan", "apply"])
def test_a_subject_that_no_server_takes_is_refused_before_anything_is_done(
    run, jetstream, tmp_path, command
):
    (tmp_path / "two.yaml").write_text(
        "streams:\n  - {name: GOOD, subjects: [good]}\n  - name: BAD\n    subjects: [a..b]\n"
    )
    words = ["--yes"] if command == "apply" else []
    status, _, err = run(command, *words, "two.yaml")
    assert (status, err) == (
        1,
        'pelton: two.yaml:4:16: subjects: "a..b" is not a valid subject\n',
    )
    assert jetstream.stream_names() == []


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "{}"],
        ["plan", "{}"],
        ["apply", "--yes", "{}"],
        ["stream", "add", "S", "--config", "{}"],
        ["consumer", "add", "S", "C", "--config", "{}"],
        ["schema", "validate", "io.nats.jetstream.api.v1.stream_configuration", "{}"],
        ["errors", "ls", "--file", "{}"],
        ["auth", "nkey", "show", "{}"],
        ["kv", "load", "B", "{}"],
    ],
)
def test_a_pipe_or_a_device_is_not_read_for_ever(run, tmp_path, words):
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "endless.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "endless.json"):
        status, out, err = run(*(each.format(name) for each in words))
        assert status in (1, 2)
        assert out == ""
        assert len(err.splitlines()) == 1, err


def test_a_pipe_of_the_shell_is_read(run, jetstream, tmp_path):
    reading, writing = os.pipe()
    os.write(writing, LOGS.encode())
    os.close(writing)
    try:
        assert run("validate", f"/dev/fd/{reading}")[:2] == (
            0,
            f"/dev/fd/{reading}:1:1: stream LOGS\n",
        )
    finally:
        os.close(reading)


LIMITED = """
listen: 127.0.0.1:@port
jetstream { store_dir: "%s" }
accounts {
    A { jetstream { max_file: 10M, max_mem: 1M, max_streams: 3 }, users: [ { user: anna, password: secret } ] }
}
no_auth_user: anna
"""


@pytest.mark.parametrize("kind", available_servers())
def test_limits_of_the_account_are_checked_before_anything_is_done(
    kind, run, monkeypatch, tmp_path
):
    (tmp_path / "store").mkdir()
    with configured(kind, LIMITED % (tmp_path / "store")) as running:
        url = f"nats://127.0.0.1:{running.ports['port']}"
        monkeypatch.setenv("NATS_URL", url)
        (tmp_path / "a.json").write_text('{"streams": {"A": {"max_bytes": 4000000}}}')
        assert run("apply", "--yes", "a.json")[0] == 0
        streams = {"A": {"max_bytes": 5000000}, "B": {"max_bytes": 6000000}}
        streams |= {name: {"max_bytes": 100, "storage": "memory"} for name in "CDE"}
        (tmp_path / "a.json").write_text(json.dumps({"streams": streams}))
        status, _, err = run("apply", "--yes", "a.json")
        assert status == 1
        assert "cannot change stream B: insufficient storage resources available" in err
        for name in "DE":
            assert f"cannot change stream {name}: maximum number of streams reached" in err
        with connect(url) as client:
            assert client.jetstream().stream_info("A").config.max_bytes == 4000000
            assert client.jetstream().stream_names() == ["A"]
        streams["B"]["max_bytes"] = 5000000
        del streams["D"], streams["E"]
        (tmp_path / "a.json").write_text(json.dumps({"streams": streams}))
        assert run("apply", "--yes", "a.json")[0] == 0
