"""Rollups: what is older than a message is removed, on its subject or on all."""

from penstock.core.stream.stream import Stream

def roll_up(stream: Stream, below: int, subject: str = "") -> int:
    """Remove what is older than a sequence, on one literal subject or ("") on all; how many."""
