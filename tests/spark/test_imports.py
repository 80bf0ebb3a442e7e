"""What the processes of Spark import: each library costs every one of them its time."""

import json
import subprocess
import sys

import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pelton.spark.reading.plan import COLUMNS
from pelton.spark.tables.commits import Tables
from pelton.spark.tables.places import place
from pelton.spark.tables.table import Write
from tests.spark.tables_help import SCHEMA, files_of

READS = """
import json, sys
from pyspark.sql.types import StructType
from {module} import {name}
from tests.spark.calls import run_batches
options, schema = (json.loads(text) for text in sys.argv[1:])
schema = StructType.fromJson(schema)
source = {name}(options)
def seqs_of(reader, partitions):
    return [seq for part in partitions for rows in reader.read(part) for seq in rows["seq"].to_pylist()]
once = source.reader(schema)
assert sorted(seqs_of(once, once.partitions())) == [1, 2, 3, 4]
assert sorted(sum(run_batches(source.streamReader(schema), seqs_of), [])) == [1, 2, 3, 4]
assert "pyarrow" in sys.modules
assert "pandas" not in sys.modules, "pandas is imported"
"""


def read(module, name, options, schema):
    """Read with a source as the processes of a query do, in a process that has imported nothing."""
    program = READS.format(module=module, name=name)
    command = [sys.executable, "-c", program, json.dumps(options), json.dumps(schema)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_reading_a_table_needs_no_pandas(tmp_path):
    where = place(tmp_path / "t")
    files = [file for seq in range(1, 5) for file in files_of(where, [seq])]
    Tables().commit(where, Write(schema=SCHEMA, files=files))
    schema = from_arrow_schema(SCHEMA).jsonValue()
    read("pelton.spark.delta.source", "DeltaDataSource", {"path": str(tmp_path / "t")}, schema)


@pytest.mark.slow
def test_reading_a_stream_needs_no_pandas(stream):
    stream.fill(4)
    schema = StructType()
    for name in ("stream", "seq", "subject", "ts", "data", "size", "born"):
        schema.add(name, "long" if COLUMNS[name] == "bigint" else COLUMNS[name])
    options = {"servers": stream.url, "stream": stream.name, "startingOffsets": "earliest"}
    read("pelton.spark.reading.source", "JetStreamDataSource", options, schema.jsonValue())
