"""Makes docs/reference/metrics.md, the list of the server's metrics.

Run without arguments to write it; with --check to exit 1 when it is not current.
"""

import sys
from pathlib import Path

from pelton.server.monitor.metrics import CONSUMERS, METRICS, PREFIX, STREAMS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/metrics.md"
HEAD = f"""# Metrics

`/metrics` of the monitoring port (`http_port`) serves these metrics for Prometheus. This page is
made by `tools/gen_metrics.py`; [watch a server](../howto/watch-a-server.md) shows how to use them.

The server reads the numbers at each request. Counters begin at 0 when the server starts. The
series of streams and consumers are limited to the first {STREAMS} streams and {CONSUMERS} consumers
by account and name. The arguments `streams` and `consumers` lower the limits
(`/metrics?streams=100&consumers=0`); `pelton_jetstream_streams_hidden` and
`pelton_jetstream_consumers_hidden` count those without series.

| metric | type | labels | meaning |
|---|---|---|---|
"""


def reference() -> str:
    """The page."""
    rows = []
    for kind in METRICS:
        name = PREFIX + kind.name + ("_total" if kind.counter else "")
        labels = ", ".join(kind.labels) or "–"
        rows.append(
            f"| `{name}` | {'counter' if kind.counter else 'gauge'} | {labels} | {kind.text} |"
        )
    return HEAD + "\n".join(rows) + "\n"


def main() -> int:
    """Write it, or with --check say whether it is current."""
    if "--check" in sys.argv[1:]:
        return int(PAGE.read_text() != reference())
    PAGE.write_text(reference())
    return 0


if __name__ == "__main__":
    sys.exit(main())
