"""Makes docs/reference/api.md from the engine's dispatch table.

Run without arguments to write it; with --check to exit 1 when it is not current. Needs the built
package.
"""

import sys
from pathlib import Path

from penstock.api.calls import TYPE_PREFIX
from penstock.api.subjects import API_PREFIX
from penstock.engine.dispatch import CALLS, Body

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/api.md"

HEAD = f"""# JetStream API

Generated from the dispatch table (`penstock.engine.dispatch.CALLS`) by `tools/gen_api_docs.py`.

Requests are messages to `{API_PREFIX}.<call>` with a reply subject; the answer is one JSON object,
whose `type` is `{TYPE_PREFIX}<response>`. A call that fails carries `error`
with `code`, `err_code` and `description` (see [errors](errors.md)). Any other subject under
`{API_PREFIX}.` gets no answer.

| call | request | response | body |
|---|---|---|---|
"""

AFTER = f"""
`{API_PREFIX}.CONSUMER.MSG.NEXT.<stream>.<consumer>` (pull) goes straight to the consumer;
`{API_PREFIX}.DIRECT.GET.<stream>[.<subject>]` answers with the messages themselves when the stream
has `allow_direct`: one, a batch (`batch`, `max_bytes`), or the last of each of up to 1024 subjects
(`multi_last`, `up_to_seq`, `up_to_time`), ended by a status `204 EOB`; what is wrong is a status,
too. Both give "no responders" when nobody serves them. A batch also ends, with
`Nats-Num-Pending` as it is, when its messages with their headers fill half of `max_pending`.

A read shows what was accepted at the moment it came, and is answered when all that it shows is as
durable as the stream promises: a crash does not take back what somebody has read.

Every call but the reads of messages is told as `$JS.EVENT.ADVISORY.API` to those who subscribe.
There is no request queue that could overflow, and a full disk refuses publishes instead of ending
JetStream, so `API.LIMIT_REACHED` and `SERVER.OUT_OF_STORAGE` are never sent.

## What to know
"""

NOTES = """
What is accepted is carried out, but for `placement`, which has no effect on a single server.

With `compression: s2` the segment files that are full are compressed, those from before the
option too; what is compressed when the option is taken away stays so until it is rewritten.

`num_replicas` above 1 is refused (10074). Ephemeral consumers are removed when they have been
unused for `inactive_threshold` (a pull consumer, a tenth of a second longer). Consumers of file
streams survive a restart, ephemeral ones too, unless they have `mem_storage`. An ack that asked for
an answer is as durable as the stream when the answer comes; of other acks the last 100 ms may be
forgotten by a server that is killed.
"""


def main() -> int:
    """Write the page when it is stale, or with --check say so."""
    text = page()
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    if "--check" in sys.argv[1:]:
        print(f"{PAGE.relative_to(ROOT)} is not current: run tools/gen_api_docs.py")
        return 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    return 0


def page() -> str:
    """The page of the manual."""
    text = HEAD
    for call in CALLS:
        request = "" if call.body in (Body.EMPTY, Body.IGNORED) else f"`{call.request.__name__}`"
        text += f"| `{call.pattern}` | {request} | `{call.type}` | {call.body.value} |\n"
    return text + AFTER + NOTES


if __name__ == "__main__":
    sys.exit(main())
