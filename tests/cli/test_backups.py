"""Backups on the command line: folders as the `nats` command line makes them."""

import json
import os

import pytest

from pelton.cli.__main__ import main
from pelton.client.sync.backup import Backup
from pelton.client.sync.backup import restore as send
from pelton.errors import ApiError
from pelton.sync import connect
from tests.copies.local import LocalServer


@pytest.fixture(scope="module")
def server():
    with LocalServer() as local:
        yield local


@pytest.fixture
def run(server, capsys, monkeypatch):
    monkeypatch.setenv("NATS_URL", server.url)

    def run_it(*arguments):
        capsys.readouterr()
        status = main([str(each) for each in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run_it


@pytest.fixture
def stream(run):
    assert run("stream", "add", "B", "--subjects", "b.>")[0] == 0
    for each in range(50):
        assert run("pub", "-J", f"b.{each % 3}", f"message {each}")[0] == 0
    assert run("consumer", "add", "B", "c")[0] == 0
    yield "B"
    run("stream", "rm", "-f", "B")


def test_there_and_back(run, stream, tmp_path):
    folder = tmp_path / "backups" / "b"
    status, out, _ = run("stream", "backup", stream, folder, "--check")
    assert status == 0
    assert out.startswith('Starting backup of Stream "B" with ')
    assert 'chunks for stream "B" in ' in out
    assert sorted(path.name for path in folder.iterdir()) == ["backup.json", "stream.tar.s2"]
    facts = json.loads((folder / "backup.json").read_text())
    assert (facts["config"]["name"], facts["state"]["messages"]) == ("B", 50)
    status, _, err = run("stream", "restore", folder)
    assert status == 1
    assert "already in use" in err
    run("stream", "rm", "-f", stream)
    status, out, _ = run("stream", "restore", folder)
    assert status == 0
    assert "Messages: 50" in out
    assert "message 7" in run("stream", "get", "B", 8)[1]
    assert "c" in run("consumer", "ls", "B")[1]


def test_for_programs_and_with_another_configuration(run, stream, tmp_path):
    status, out, _ = run("stream", "backup", stream, tmp_path / "b", "--no-consumers", "--json")
    assert status == 0
    assert json.loads(out)["stream"] == "B"
    run("stream", "rm", "-f", stream)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"name": "B", "subjects": ["other.>"], "max_msgs": 20}))
    status, out, _ = run("stream", "restore", tmp_path / "b", "--config", config, "--json")
    assert status == 0
    info = json.loads(out)
    assert info["config"]["subjects"] == ["other.>"]
    assert (info["state"]["messages"], info["state"]["consumer_count"]) == (20, 0)


def test_a_backup_is_for_its_user_alone(run, stream, tmp_path):
    before = os.umask(0)
    try:
        assert run("stream", "backup", stream, tmp_path / "new" / "b")[0] == 0
    finally:
        os.umask(before)
    for path in ("new", "new/b"):
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o700
    for path in ("backup.json", "stream.tar.s2"):
        assert (tmp_path / "new/b" / path).stat().st_mode & 0o777 == 0o600


def test_mistakes(run, stream, tmp_path):
    folder = tmp_path / "b"
    assert run("stream", "backup", "NONE", folder)[0] == 1
    assert not folder.exists()
    assert run("stream", "backup", stream, folder)[0] == 0
    status, _, err = run("stream", "backup", stream, folder)
    assert status == 2
    assert "already exists" in err
    run("stream", "rm", "-f", stream)
    config = tmp_path / "config.json"
    config.write_text('{"name":"OTHER"}')
    assert "can't rename" in run("stream", "restore", folder, "--config", config)[2]
    config.write_text("{")
    assert run("stream", "restore", folder, "--config", config)[0] == 2
    archive = folder / "stream.tar.s2"
    archive.write_bytes(archive.read_bytes()[:-20])
    status, _, err = run("stream", "restore", folder)
    assert status == 1
    assert "restore failed" in err
    assert run("stream", "info", "B")[0] == 1
    (folder / "backup.json").write_text("{}")
    assert "names no stream" in run("stream", "restore", folder)[2]


def test_large_backups_over_the_wire(server):
    with connect(server.url) as client:
        jetstream = client.jetstream()
        from pelton import StreamConfig

        jetstream.create_stream(StreamConfig(name="L", subjects=["l"], num_replicas=1))
        noise = bytes((n * n + n // 251) % 256 for n in range(100_000))
        with jetstream.publisher() as publisher:
            for n in range(200):
                publisher.publish("l", noise[n:] + noise[:n])
        coming = Backup(jetstream, "L", chunk_bytes=50_000, window_bytes=300_000)
        with pytest.raises(ApiError, match="in progress"):
            Backup(jetstream, "L")
        data = list(coming)
        assert coming.state.messages == 200
        assert len(data) > 5
        with pytest.raises(ApiError):
            Backup(jetstream, "NONE")
        jetstream.delete_stream("L")
        assert send(jetstream, coming.config, data, coming.state).state.messages == 200
        jetstream.delete_stream("L")
