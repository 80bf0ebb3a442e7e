"""What Python sees of segments; the compiled methods are declared in segment.pxd."""

class Segment:
    first: int
    count: int
    live: int
    live_bytes: int
    size: int
    sealed: bool

class SegmentList:
    items: list[Segment]
    loaded_limit: int
