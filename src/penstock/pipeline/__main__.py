"""``python -m penstock.pipeline``: the same as ``penstock run``."""

import sys

from penstock.pipeline.logs.run import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
