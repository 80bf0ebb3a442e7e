"""Error lines about clients are so many in a second and no more."""

import io

from pelton.server.logs.log import Log
from pelton.server.logs.rate_limited_log import LINES_MAX, RateLimitedLog
from pelton.server.units import SECOND_NS


def test_what_is_too_much_is_counted_and_told_later():
    stream = io.StringIO()
    complaints = RateLimitedLog(Log(stream=stream, stamps=False), "violations")
    for i in range(1000):
        complaints.say(SECOND_NS + i, f"line {i}")
    assert stream.getvalue().count("[ERR]") == LINES_MAX
    complaints.say(2 * SECOND_NS, "next")
    complaints.say(3 * SECOND_NS, "last")
    lines = [line.partition("[ERR] ")[2] for line in stream.getvalue().splitlines()]
    assert lines[LINES_MAX:] == [
        f"violations: {1000 - LINES_MAX} more lines were not logged",
        "next",
        "last",
    ]
