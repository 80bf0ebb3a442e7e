"""The API calls that start a backup or a restore.

The first such call loads the modules `engine/backups/snapshots` and `engine/backups/restores`: most servers never
receive one, and loading them would slow down each start.
"""

from typing import TYPE_CHECKING

from pelton.api.calls import (
    StreamRestoreRequest,
    StreamRestoreResponse,
    StreamSnapshotRequest,
    StreamSnapshotResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.api.calls import Response
    from pelton.engine.account.account import JetStreamAccount


def snapshot(
    account: "JetStreamAccount",
    request: StreamSnapshotRequest,
    answer: "Callable[[Response], None]",
    name: str,
) -> StreamSnapshotResponse | None:
    """STREAM.SNAPSHOT."""
    from pelton.engine.backups import snapshots

    return snapshots.start(account, request, answer, name)


def restore(
    account: "JetStreamAccount", request: StreamRestoreRequest, name: str
) -> StreamRestoreResponse:
    """STREAM.RESTORE."""
    from pelton.engine.backups import restores

    return restores.start(account, request, name)
