"""Makes docs/reference/metrics.md, the list of metrics that the server has.

Run without arguments to write it; with --check to exit 1 when it is not current.
"""

import sys
from pathlib import Path

from penstock.server.monitor.metrics import CONSUMERS, METRICS, PREFIX, STREAMS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/metrics.md"
HEAD = f"""# Metrics

What `/metrics` of the monitoring port (`http_port`) tells Prometheus; made by `tools/gen_metrics.py`.
How to use it: [watch a server](../howto/watch-a-server.md).

Numbers are read when they are asked for. Counters begin at 0 with the server. Series of streams and
consumers are bounded: the first {STREAMS} streams and {CONSUMERS} consumers by account and name have some,
fewer with the arguments `streams` and `consumers` (`/metrics?streams=100&consumers=0`);
`penstock_jetstream_streams_hidden` and `penstock_jetstream_consumers_hidden` say how many have none.

| metric | type | labels | what it says |
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
