"""The commands of ``pelton store``, and their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.cli.store.session import StoreGroup

if TYPE_CHECKING:
    from pelton.cli.commands import Row

STORE: dict[str, Row] = {
    "ls": ("List the streams of a store.", "store.checking", "ls"),
    "check": ("Report what a start of the server would find.", "store.checking", "check"),
    "verify": ("Read and check every byte of a store or a backup.", "store.checking", "verify"),
    "repair": ("Repair what can be repaired; deletes nothing.", "store.repair", "repair"),
    "dump": ("Print messages, consumers, configuration of a stream.", "store.dump", "dump"),
    "backup": ("Add a backup to a backup folder.", "store.backups", "backup"),
    "backups": ("List the backups of a backup folder.", "store.backups", "backups"),
    "restore": ("Put streams of a backup into a store.", "store.backups", "restore"),
    "prune": ("Remove old backups from a backup folder.", "store.backups", "prune"),
}

store = StoreGroup(
    name="store",
    help="Check, repair and back up a store folder, without a server or beside one. "
    "Exit status: 0 sound, 1 damage, 2 the command could not do its work.",
    no_args_is_help=True,
)
store.rows = STORE
