"""A reader's interpreter for the ``python`` blocks of a page: names stay from one block to the next.

A line of JSON on standard input is a block and where it stands. Behind what a block prints comes a line of
a zero byte and ``done`` or ``failed``.
"""

import json
import sys
import traceback

names = {"__name__": "__main__"}
for line in sys.stdin:
    given = json.loads(line)
    try:
        exec(compile(given["code"], given["place"], "exec"), names)
        end = "done"
    except BaseException:
        traceback.print_exc(file=sys.stdout)
        end = "failed"
    print("\n\0" + end, flush=True)
