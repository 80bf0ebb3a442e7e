"""A fixture with a server over an empty folder, for tests that need no other."""

from pathlib import Path

import pytest

from tests.engine.house import House


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)
