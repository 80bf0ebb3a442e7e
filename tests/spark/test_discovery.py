"""The module Spark imports to find the format: never fails, imports nothing before it is asked."""

import subprocess
import sys

import pytest

FORMATS = {
    "pyspark_jetstream": "reading.source",
    "pyspark_jetstream_delta": "tables.source",
    "pyspark_jetstream_iceberg": "iceberg.source",
    "pyspark_jetstream_kv": "buckets.kv_source",
    "pyspark_jetstream_object": "writing.sink",
}
LAZY = """
import sys
import {module} as found
assert not any(name.startswith("pelton") or name == "pyarrow" for name in sys.modules), "not lazy"
assert not hasattr(found, "Other")
assert found.DefaultSource.name() == "{name}"
assert not any(name in ("pyarrow", "deltalake", "pyiceberg") for name in sys.modules), "looking is not cheap"
"""
BROKEN = """
import sys
sys.modules["pelton.spark.{source}"] = None
import {module} as found
assert not hasattr(found, "DefaultSource")
"""


@pytest.mark.parametrize("program", [LAZY, BROKEN])
@pytest.mark.parametrize("module", FORMATS)
def test_importing_it(program, module):
    program = program.format(module=module, source=FORMATS[module], name=module[len("pyspark_") :])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
