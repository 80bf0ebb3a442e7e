"""The module Spark imports to find the format: never fails, imports nothing before it is asked."""

import subprocess
import sys

import pytest

LAZY = """
import sys
import pyspark_jetstream
assert not any(name.startswith("penstock") or name == "pyarrow" for name in sys.modules), "not lazy"
assert not hasattr(pyspark_jetstream, "Other")
assert pyspark_jetstream.DefaultSource.name() == "jetstream"
"""
BROKEN = """
import sys
sys.modules["penstock.spark.source"] = None
import pyspark_jetstream
assert not hasattr(pyspark_jetstream, "DefaultSource")
"""


@pytest.mark.parametrize("program", [LAZY, BROKEN])
def test_importing_it(program):
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
