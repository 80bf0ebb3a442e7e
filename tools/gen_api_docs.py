"""Makes docs/reference/api.md from the engine's dispatch table.

Run without arguments to write it; with --check to exit 1 when it is not current. Needs the built
package.
"""

import sys
from pathlib import Path

from pelton.api.calls import TYPE_PREFIX
from pelton.api.subjects import API_PREFIX
from pelton.engine.calls.api_calls import CALLS, Body

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/api.md"

HEAD = f"""# JetStream API

Generated from the dispatch table (`pelton.engine.calls.api_calls.CALLS`) by `tools/gen_api_docs.py`.

A client sends a request to `{API_PREFIX}.<call>` with a reply subject. The answer is one JSON object,
whose `type` is `{TYPE_PREFIX}<response>`. The answer of a failed call has `error`
with `code`, `err_code` and `description` (see [errors](errors.md)). A request to any other subject
under `{API_PREFIX}.` gets no answer.

| call | request | response | body |
|---|---|---|---|
"""

AFTER = f"""
A pull request to `{API_PREFIX}.CONSUMER.MSG.NEXT.<stream>.<consumer>` goes straight to the consumer.
If the stream has `allow_direct`, `{API_PREFIX}.DIRECT.GET.<stream>[.<subject>]` answers with the
messages themselves: one, a batch (`batch`, `max_bytes`), or the last of each of up to 1024 subjects
(`multi_last`, `up_to_seq`, `up_to_time`), and then a status `204 EOB`. An error is a status, too.
Both give "no responders" if nobody serves them. A batch also ends, with its current
`Nats-Num-Pending`, when its messages with their headers fill half of `max_pending`.

A read shows what the stream had accepted when the request was carried out. It is answered when everything
that it shows is as durable as the stream promises, so a crash does not remove what a client has read.

The server carries out requests step by step: accounts take turns, and so do the connections of an
account. Operations of one connection stay in order, for example a publish and the `STREAM.INFO`
behind it, because the server reads on only when a request is carried out. So a client can send any
number of requests at once. Of requests that come over leaf node connections 10,000 of an account may
wait, with 64 MiB; the next one is refused (10023), and the server publishes
`$JS.EVENT.ADVISORY.API.LIMIT_REACHED`. Requests that wait when their account loses JetStream are
refused, too (10039). A long answer, such as a list, is made in steps too: what changes
meanwhile may be in it or not.

The server publishes `$JS.EVENT.ADVISORY.API` about every call except reads of messages, if somebody
subscribes.

## Notes
"""

NOTES = """
The server carries out everything that it accepts, except `placement`, which has no effect on a
single server.

With `compression: s2` the server compresses full segment files, also those from before the
option was set. If the option is removed, a compressed file stays compressed until it is rewritten.

`num_replicas` above 1 is refused (10074). The server removes an ephemeral consumer that is unused
for `inactive_threshold` (a pull consumer, a tenth of a second longer). Consumers of file
streams survive a restart, ephemeral ones too, unless they have `mem_storage`. When a confirmed ack
is answered, it is as durable as the stream. A killed server may forget other acks of the last
100 ms.
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
