"""Read, write and kill, and compare every row: ``python -m tests.spark.exact --help``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from random import SystemRandom

from tests.spark.exact.proof import WAYS, JobFailedError, Proof, Wanted, table_of


def main() -> int:
    """0 when every row was right."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.exact", description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=3, help="in reading, and as many in writing")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--server", default="", help="a nats-server; without it, Pelton")
    parser.add_argument("--cluster", action="store_true", help="workers are killed, too")
    parser.add_argument("--ways", default=",".join(WAYS), help="how the table is written back")
    parser.add_argument("--keep", default="", help="a folder for tables, checkpoints and logs")
    parser.add_argument("--json", action="store_true", help="the result as JSON, at the end")
    told = parser.parse_args()
    seed = SystemRandom().randrange(2**32) if told.seed is None else told.seed
    if told.server:
        os.environ["NATS_SERVER"] = told.server
    wanted = Wanted(
        messages=told.messages,
        kills=told.kills,
        seed=seed,
        server="nats-server" if told.server else "pelton",
        ways=tuple(way for way in told.ways.split(",") if way),
        cluster=told.cluster,
        keep=told.keep,
    )
    say = sys.stderr if told.json else sys.stdout
    print(f"seed {seed}, {told.messages:,} messages, {told.kills} kills", file=say, flush=True)
    begun = time.monotonic()
    proof = Proof(wanted, lambda text: print(text, file=say, flush=True))
    failed = ""
    try:
        proof.run()
    except (JobFailedError, AssertionError, RuntimeError, TimeoutError) as error:
        failed = str(error)
        print(f"could not go on: {failed}", file=sys.stderr)
    if told.json:
        parts = [
            {
                "name": part.name,
                "kills": dict(part.kills),
                "lives": part.lives,
                "rows": part.verdict.rows,
                "since_removed": part.verdict.removed,
                "expected": part.verdict.expected,
                "wrong": dict(part.verdict.faults),
                "examples": part.verdict.examples,
            }
            for part in proof.parts
        ]
        seconds = round(time.monotonic() - begun, 1)
        print(json.dumps({"seed": seed, "seconds": seconds, "failed": failed, "parts": parts}))
    else:
        print("\n" + table_of(proof.parts, wanted))
    return 1 if failed or any(part.verdict.faults for part in proof.parts) else 0


if __name__ == "__main__":
    sys.exit(main())
