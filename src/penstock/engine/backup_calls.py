"""The calls that begin a backup or a restore.

What they need is loaded with the first of them: most servers never see one, and each start would
wait for it. Knows nothing of how it is done: `engine/snapshots`, `engine/restores`.
"""

from typing import TYPE_CHECKING

from penstock.api.calls import (
    StreamRestoreRequest,
    StreamRestoreResponse,
    StreamSnapshotRequest,
    StreamSnapshotResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.calls import Response
    from penstock.engine.account import JetStreamAccount


def snapshot(
    account: "JetStreamAccount",
    request: StreamSnapshotRequest,
    answer: "Callable[[Response], None]",
    name: str,
) -> StreamSnapshotResponse | None:
    """STREAM.SNAPSHOT."""
    from penstock.engine import snapshots

    return snapshots.start(account, request, answer, name)


def restore(
    account: "JetStreamAccount", request: StreamRestoreRequest, name: str
) -> StreamRestoreResponse:
    """STREAM.RESTORE."""
    from penstock.engine import restores

    return restores.start(account, request, name)
