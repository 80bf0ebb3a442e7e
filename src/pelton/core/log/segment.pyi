"""What Python sees of a segment; the compiled methods are declared in segment.pxd."""

class Segment:
    first: int
    count: int
    live: int
    live_bytes: int
    size: int
    sealed: bool
