"""Fuzzing by hand and in CI.

    python -m tests.fuzz run [TARGET...] [--seconds 60] [--out build/fuzz]   search on, from the kept inputs
    python -m tests.fuzz smoke [--seconds 60]                                the same for all targets together, for CI
    python -m tests.fuzz replay TARGET FILE...                               one input again (--plain: on the normal build)
    python -m tests.fuzz keep [TARGET...]                                    minimise what was found into the kept inputs
    python -m tests.fuzz tests [pytest's arguments]                          pytest on the instrumented core
    python -m tests.fuzz build                                               only make the instrumented core

What it found goes to build/fuzz/TARGET/found, what broke to build/fuzz/TARGET/crash-*.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from tests.fuzz import build, runs


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("run", "smoke", "keep"):
        command = commands.add_parser(name)
        command.add_argument("targets", nargs="*")
        command.add_argument("--seconds", type=int, default=60)
    replay = commands.add_parser("replay")
    replay.add_argument("targets", nargs=1)
    replay.add_argument("files", nargs="+", type=Path)
    replay.add_argument("--plain", action="store_true")
    tests = commands.add_parser("tests")
    tests.add_argument("--kind", default="asan", choices=list(build.KINDS))
    made = commands.add_parser("build")
    made.add_argument("--kind", default="asan", choices=list(build.KINDS))
    said, rest = parser.parse_known_args()
    if rest and said.command != "tests":
        parser.error(f"unknown: {' '.join(rest)}")
    if said.command == "replay" and said.plain:
        return runs.replay_here(said.targets[0], said.files)
    kind = getattr(said, "kind", "asan")
    print(f"compiling the core with sanitizers, where it changed: {build.folder(kind)}", flush=True)
    build.build(kind)
    if said.command == "tests":
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *rest]
        return subprocess.run(command, env=build.environment(kind), check=False).returncode
    if said.command == "replay":
        return runs.replay(said.targets[0], said.files)
    if said.command == "build":
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("no atheris here (pip install 'pelton[fuzz]'): the kept inputs are replayed instead")
        return runs.replay_all(said.targets)
    if said.command == "keep":
        return runs.keep(said.targets)
    if said.command == "smoke":
        return runs.short_search(said.targets, said.seconds)
    return runs.search(said.targets, said.seconds)


if __name__ == "__main__":
    sys.exit(main())
