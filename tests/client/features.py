"""What a nats-server may be too old for, from the table that tells the users of the client (`client/base/answers.py`).

``@pytest.mark.needs("allow_msg_ttl")`` on a test, or in the ``pytestmark`` of a file, leaves it out on a server
that is older; the reason names the feature. So the suite runs against each nats-server that the client works
with: ``PELTON_TEST_SERVERS=nats-server NATS_SERVER=/path/to/nats-server pytest tests/client``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pelton.client.base.answers import NEEDS
from tests.peers import version_of

if TYPE_CHECKING:
    from collections.abc import Iterable

PEERS = ("nats-server", "older")
SINCE = {need.field: tuple(map(int, need.since.split("."))) for need in NEEDS}


def knows(kind: str, feature: str) -> bool:
    """Whether a server of this kind is new enough; KeyError for a feature that is not in the table."""
    since = SINCE[feature]
    return kind not in PEERS or version_of(kind) >= since


def leave_out(items: Iterable[pytest.Item]) -> None:
    """Skip the tests that need more than their server knows."""
    for item in items:
        features = [each for mark in item.iter_markers("needs") for each in mark.args]
        params = getattr(item, "callspec", None)
        kinds = [each for each in params.params.values() if each in PEERS] if params else []
        for feature in features:
            if not all(knows(kind, feature) for kind in kinds):
                since = ".".join(map(str, SINCE[feature]))
                item.add_marker(pytest.mark.skip(reason=f"{feature}: needs nats-server {since}"))
                break
