"""Messages that are stored as a whole or not at all."""

from pelton.core.stream.draft import Draft
from pelton.core.stream.publish import PublishPath

def store_whole(path: PublishPath, drafts: list[Draft]) -> list[int]:
    """Store drafts that have passed their checks as one group, all or none; returns their sequences.

    Each message is treated as if it was published alone: the stream remembers its id, and applies limits and the rules after the store.
    Raises StreamRefused when the disk takes nothing, or the messages do not fit one segment; then nothing is stored.
    """
