"""Arrow's datasets are loaded without pandas, which stays usable."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
import pelton.sql.tables
assert "pyarrow.dataset" in sys.modules
from pelton import arrow
assert arrow.flags([True, False, True]).to_pylist() == [True, False, True]
assert arrow.flags([]).to_pylist() == []
assert arrow.constant("a").as_py() == "a"
assert "pandas" not in sys.modules
import pyarrow
assert pyarrow.table({"a": [1, 2]}).to_pandas()["a"].sum() == 3
"""


def test_a_query_does_not_load_pandas_and_arrow_still_finds_it() -> None:
    ran = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
