"""What Python sees of the segments of a log; the compiled methods are declared in segment_list.pxd."""

from pelton.core.log.segment import Segment

class SegmentList:
    items: list[Segment]
    loaded_limit: int
