"""The test file that the how-to shows."""

import sys
from subprocess import run

from tests.documents import ROOT, blocks_of

PAGE = ROOT / "docs/howto/test-with-pelton.md"


def test_the_example_for_pytest_passes(tmp_path, monkeypatch):
    (example,) = [block.text for block in blocks_of(PAGE) if block.text.startswith("# test_")]
    (tmp_path / "test_orders.py").write_text(example)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pelton.testing.plugin", "."]
    done = run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout
