"""Run by ``make test-pyodide`` in Pyodide: import the client, then run tests that connect to nothing.

There are no sockets, threads or compiled modules of ours there: everything is the twins in Python.
The value of the last line is the exit code.
"""

import platform
import sys

import pytest

import pelton.sync
from pelton.core.protocol import wire

TESTS = (
    "client/test_batches.py",
    "client/test_connection.py",
    "client/test_intake.py",
    "client/test_options.py",
    "client/test_own_consumers.py",
    "client/test_publishing.py",
    "client/test_pull.py",
    "client/test_websocket.py",
)

NAMES = [(door, name) for door in (pelton, pelton.sync) for name in vars(door)["__all__"]]
for door, name in NAMES:
    getattr(door, name)
assert "/core/plain/" in wire.__file__, wire.__file__
print(f"Python {platform.python_version()}, {sys.platform}: {len(NAMES)} names")
QUIET = (
    "-q",
    "--noconftest",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:faulthandler",
    "-p",
    "no:warnings",
)
int(pytest.main([*QUIET, "--rootdir=/checkout", *(f"/checkout/tests/{each}" for each in TESTS)]))
