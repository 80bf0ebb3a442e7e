"""What needs the core, in a process that has the instrumented one: ``seeds TARGET...``, ``replay TARGET [FILE...]``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz import corpus, targets
from tests.fuzz.runs import OUT


def write_seeds(name: str) -> None:
    """Seeds, words and the limit of a target, into its folder."""
    target = targets.load(name)
    for old in (OUT / name / "seeds").glob("*"):
        old.unlink()
    corpus.write(OUT / name / "seeds", target.seeds())
    words = ('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in target.words)
    (OUT / name / "words").write_text("".join(words))
    (OUT / name / "max_bytes").write_text(str(target.max_bytes))


def replay(name: str, files: list[Path]) -> None:
    target = targets.load(name)
    for path in files:
        print(f"{name}: {path}", end=" ", flush=True)
        target.run(path.read_bytes())
        print("passes", flush=True)


def replay_kept(name: str) -> None:
    target = targets.load(name)
    count = 0
    for data in [*target.seeds(), *(path.read_bytes() for path in corpus.inputs(name))]:
        target.run(data)
        count += 1
    print(f"{name:12} {count} kept inputs pass", flush=True)


def main() -> None:
    command, name, *files = sys.argv[1:]
    if command == "seeds":
        for each in (name, *files):
            write_seeds(each)
    elif files:
        replay(name, [Path(file) for file in files])
    else:
        replay_kept(name)


if __name__ == "__main__":
    main()
