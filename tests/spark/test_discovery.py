"""The modules Spark imports to find the formats: never fail, import nothing before they are asked."""

import subprocess
import sys

import pytest

LAZY = """
import sys
import {module}
assert not any(name.startswith("penstock") or name == "pyarrow" for name in sys.modules), "not lazy"
assert not hasattr({module}, "Other")
assert {module}.DefaultSource.name() == "{name}"
"""
BROKEN = """
import sys
sys.modules["{source}"] = None
import {module}
assert not hasattr({module}, "DefaultSource")
"""
FORMATS = {
    "jetstream": "penstock.spark.source",
    "jetstream_kv": "penstock.spark.kv_source",
    "jetstream_object": "penstock.spark.sink",
}


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("program", [LAZY, BROKEN])
def test_importing_it(program, name):
    text = program.format(module=f"pyspark_{name}", name=name, source=FORMATS[name])
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
