"""The random walks beside nats-server: which ones a run takes, and how many.

They are the same in each run; `make test` takes a third of them. COMPAT_SEED=1, 2 ... takes others,
COMPAT_TIMES=10 ten times as many:

    COMPAT_SEED=$RANDOM COMPAT_TIMES=10 pytest tests/compat -k "walk or together or any_order or batches_with_headers"
"""

from __future__ import annotations

import os

from tests.ways import length

COMPAT_SEED = int(os.environ.get("COMPAT_SEED", "0"))
COMPAT_TIMES = int(os.environ.get("COMPAT_TIMES", "1"))


def seed_of(number: int) -> int:
    """The seed of a walk: its number, unless COMPAT_SEED asks for others."""
    return number + 1000 * COMPAT_SEED


def walks(usual: int) -> range:
    """The numbers of the walks of one kind."""
    return range(examples(usual))


def examples(usual: int) -> int:
    """How many examples Hypothesis tries."""
    return length(-(-usual // 3), usual) * COMPAT_TIMES
