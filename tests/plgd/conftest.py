"""A server of every kind there is."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from tests.peers import ServerProcess, available_servers, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=available_servers())
def server(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    """A server for this test alone."""
    with running_server(request.param) as process:
        yield process


@pytest.fixture
def unique() -> str:
    """A name nobody else uses."""
    return f"T{uuid.uuid4().hex[:12]}"
