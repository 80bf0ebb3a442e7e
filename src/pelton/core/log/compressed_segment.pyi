"""Segment files whose bytes are compressed block by block."""

class Packed:
    size: int
    stored: int
