"""``python -m pelton.pipeline``: the same as ``pelton run``."""

import sys

from pelton.pipeline.logs.run import run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
