"""Rollups: remove the messages older than a message, on its subject or on all."""

from pelton.core.stream.stream import Stream

def roll_up(stream: Stream, below: int, subject: str = "") -> int:
    """Remove the messages older than a sequence, on one literal subject or ("") on all; returns how many."""
