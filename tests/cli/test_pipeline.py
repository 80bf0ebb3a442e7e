"""``pelton pipeline`` without a JVM: check, status, init, and what is wrong before a run."""

import json
import os
import subprocess
import sys

import pytest

from pelton.cli.__main__ import main
from pelton.pipeline.children import Children

FILE = """\
pipeline: shop
sources:
  raw: {format: jetstream, stream: ORDERS, servers: "nats://127.0.0.1:9"}
sinks:
  table: {from: raw, format: jetstream_delta, path: table}
  files: {from: raw, format: parquet, path: files}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "shop.yaml"
    path.write_text(FILE)
    return path


def test_check_draws_the_graph_and_the_queries(file, capsys):
    assert main(["pipeline", "check", "--no-sql", str(file)]) == 0
    out = capsys.readouterr().out
    assert "shop: " in out
    assert "├─ => table  jetstream_delta" in out
    assert "query raw: raw -> table" in out
    assert "query files: raw -> files" in out
    assert main(["pipeline", "check", "--no-sql", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["queries"][0]["sinks"] == ["table"]
    assert not (file.parent / "state").exists()


def test_every_problem_is_a_line(file, capsys):
    file.write_text(
        FILE.replace("stream: ORDERS", "strem: ORDERS").replace("from: raw", "from: rw")
    )
    for command in ("check", "run", "status"):
        assert main(["pipeline", command, str(file)]) == 1
        err = capsys.readouterr().err.splitlines()
        assert len(err) == 4, err
        assert all(line.startswith(f"pelton: {file}:") for line in err)


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    assert main(["pipeline", "check", str(tmp_path / "none.yaml")]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_init_prints_a_file_that_is_well(tmp_path, capsys):
    assert main(["pipeline", "init"]) == 0
    path = tmp_path / "mine.yaml"
    path.write_text(capsys.readouterr().out)
    assert main(["pipeline", "check", "--no-sql", str(path)]) == 0


def test_a_folder_in_use_is_one_line(file, capsys):
    held = Children(file.parent / "state" / "shop")
    assert main(["pipeline", "run", str(file), "--once"]) == 1
    err = capsys.readouterr().err
    assert f"in use by process {os.getpid()}" in err
    assert err.count("\n") == 1
    assert main(["pipeline", "status", str(file)]) == 0
    assert f"running, process {os.getpid()}" in capsys.readouterr().out
    held.release()


def test_status_before_the_first_run(file, capsys):
    assert main(["pipeline", "status", str(file)]) == 0
    out = capsys.readouterr().out
    assert "not running" in out
    assert "not begun: table, files" in out


def test_status_reads_the_checkpoint(file, capsys):
    state = file.parent / "state" / "shop"
    query = {"sources": ["raw"], "shared": True, "sinks": ["table"], "left": {}}
    for folder in ("offsets", "commits"):
        (state / "checkpoints" / "raw" / folder).mkdir(parents=True)
    (state / "pipeline.json").write_text(
        json.dumps({"pipeline": "shop", "queries": {"raw": query}})
    )
    offset = '{"stream": "ORDERS", "seq": 41, "born": "2026-01-01T00:00:00Z"}'
    for batch in ("6", "7"):
        (state / "checkpoints" / "raw" / "offsets" / batch).write_text(f"v1\n{{}}\n{offset}\n")
    (state / "checkpoints" / "raw" / "commits" / "6").write_text("v1\n{}")
    assert main(["pipeline", "status", str(file), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [one] = found["queries"]
    assert (one["batch"], one["under_way"]) == (6, True)
    assert one["places"][0]["sequence"] == 41
    assert one["places"][0]["lag"] is None
    assert "cannot connect" in one["places"][0]["problem"]
    assert found["not_begun"] == ["files"]
    assert main(["pipeline", "status", str(file)]) == 0
    out = capsys.readouterr().out
    assert "6 +1" in out
    assert "unknown: " in out


@pytest.mark.slow
def test_check_has_sql_read_by_spark(file):
    file.write_text(
        FILE.replace("format: jetstream_delta,", "where: id is nott null, format: jetstream_delta,")
    )
    command = [sys.executable, "-m", "pelton.cli", "pipeline", "check", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)  # its session ends
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith(f"pelton: {file}:5: sinks.table: where: [PARSE_SYNTAX_ERROR]")
    assert line.endswith("in: id is nott null")
    assert main(["pipeline", "check", "--no-sql", str(file)]) == 0
