"""The short search: ``python -m tests.fuzz.short SECONDS TARGET...``.

One process on the instrumented core imports all targets, which takes longer than most searches, and each
target is searched by a copy of it. A line ``=== TARGET`` stands before what libFuzzer writes, and one with
the exit status behind it.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys

from tests.fuzz import corpus
from tests.fuzz.engine import guided, prepared, search
from tests.fuzz.runs import OUT, options
from tests.ways import length

INPUTS = length(20, 50)
RUNS = length(300, -1)  # -1: as many as the seconds allow


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
    with guided():
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
                given = [*options(name, int(seconds)), "-seed=1", f"-runs={RUNS}", known(name)]
                search(target, given)
                os._exit(0)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            print(f"=== {name} {status}", flush=True)


if __name__ == "__main__":
    main()
