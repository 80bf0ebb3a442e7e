"""Messages that are stored whole or not at all."""

from penstock.core.stream.draft import Draft
from penstock.core.stream.stream import Stream

def store_whole(stream: Stream, drafts: list[Draft]) -> list[int]:
    """Store drafts that have passed their checks, all or none of them, as one group; their sequences.

    Each is as if it had been published by itself: its id is remembered, limits and rules after the store apply. StreamRefused:
    the disk takes nothing, or it is too much for one segment; nothing was stored then.
    """
