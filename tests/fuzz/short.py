"""The short search: ``python -m tests.fuzz.short SECONDS TARGET...``.

One process on the instrumented core imports all targets, which takes longer than most searches, and each
target is searched by a copy of it. A line ``=== TARGET`` stands before what libFuzzer writes, and one with
the exit status behind it.

In `make test` a search ends after a number of inputs, not after some seconds, so that it is the same on a busy
machine. There the compiled core guides it alone: to instrument Python's modules takes longer than all searches.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from contextlib import nullcontext

from tests.fuzz import corpus
from tests.fuzz.engine import guided, prepared, search
from tests.fuzz.runs import OUT, options
from tests.ways import FULL, length

INPUTS = length(12, 50)
RUNS = 100
# A server, a log or a connection for each input.
COSTLY = {
    "api": 20,
    "leaf": 40,
    "recovery": 25,
    "restore": 25,
    "segment": 25,
    "session": 40,
    "states": 25,
}


def runs(name: str) -> int:
    """How many inputs of a target are tried; -1: as many as the seconds allow."""
    return length(COSTLY.get(name, RUNS), -1)


def known(name: str) -> str:
    """A folder with some of what is known: all of it would run before anything new does.

    The same each time, so that a run of the tests is no lottery; what is new is for a long search.
    """
    folder = OUT / name / "brief"
    shutil.rmtree(folder, ignore_errors=True)
    inputs = corpus.inputs(name) or sorted((OUT / name / "seeds").iterdir())
    some = inputs[:: 1 + len(inputs) // INPUTS]
    corpus.write(folder, (path.read_bytes() for path in some))
    return str(folder)


def main() -> None:
    seconds, *names = sys.argv[1:]
    with guided() if FULL else nullcontext():
        from tests.fuzz.inside import write_seeds

        targets = {name: prepared(name) for name in names}
        for name in names:
            write_seeds(name)
        gc.collect()
        gc.freeze()
        for name, target in targets.items():
            print(f"=== {name}", flush=True)
            pid = os.fork()
            if not pid:
                # All that is known is changed, also where only Python's coverage would keep it.
                some = ["-seed=1", "-keep_seed=1", f"-runs={runs(name)}", known(name)]
                search(target, [*options(name, int(seconds)), *some])
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(f"=== {name} {status}", flush=True)


if __name__ == "__main__":
    main()
