"""Spark Connect: a client without a JVM of its own, a server from the same package; our formats in
both directions.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pelton
from pelton.client.base.models import StreamConfig
from pelton.sync import connect
from pelton.testing import LocalServer
from tests import pythons

# What pyspark.sql.connect imports, and "pip install pyspark[connect]" brings.
NEEDED = {
    "grpc": "grpcio",
    "grpc_status": "grpcio-status",
    "google.rpc": "googleapis-common-protos",
    "zstandard": "zstandard",
}
MESSAGES = 1000


def here(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


MISSING = [name for module, name in NEEDED.items() if not here(module)]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]


def test_reading_and_writing(tmp_path):
    with LocalServer() as server, connect(server.url) as client:
        js = client.jetstream()
        for name, subjects in (("SOURCE", "source.>"), ("COPIES", "copies.*")):
            js.create_stream(StreamConfig(name=name, subjects=[subjects], storage="memory"))
        with js.publisher() as publisher:
            for number in range(1, MESSAGES + 1):
                publisher.publish("source.x", b"%d" % number)
        places = [str(tmp_path / name) for name in ("checkpoint", "table")]
        done = subprocess.run(
            [
                sys.executable,
                str(Path(__file__).with_name("connect_job.py")),
                *("local[2]", server.url, "SOURCE", "COPIES"),
                *places,
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=500,
            env={
                **pythons.plain(os.environ),
                "PYTHONPATH": os.pathsep.join(
                    [str(Path(pelton.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
                ),
                # A free port for the Connect server, instead of 15002.
                "SPARK_TESTING": "1",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
        )
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert told == {
            "session": "pyspark.sql.connect.session",
            "batch": [MESSAGES, MESSAGES * (MESSAGES + 1) // 2],
            "some": [6, 7, 8],
            "table": MESSAGES,
        }
        found = Counter()
        for seq in range(1, js.stream_info("COPIES").state.last_seq + 1):
            message = js.get_message("COPIES", seq)
            found[message.subject, int(message.data)] += 1
        assert found == Counter(
            (f"copies.{way}", number)
            for way in ("batch", "stream")
            for number in range(1, MESSAGES + 1)
        )
