"""Processes over targets: search, replay, minimise.

Imports neither the core nor a target, but for `replay_here`: what runs the core is another process, whose environment
`build.environment` makes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import build, corpus, targets
from tests.ways import length

OUT = build.ROOT / "build" / "fuzz"
INPUT_SECONDS = 20
MEMORY_MIB = 3072
BRIEF_INPUTS = length(20, 50)
STATUS = re.compile(r"^#(\d+)\s+(\w+)\s+(?:cov: (\d+) )?(?:ft: (\d+) )?(?:corp: (\d+))?")


@dataclass
class Figures:
    """What libFuzzer says while it runs."""

    executions: int = 0
    blocks_before: int = 0
    blocks: int = 0
    inputs: int = 0


def chosen(names: Sequence[str]) -> list[str]:
    """Those targets, or all. ValueError for an unknown name."""
    known = targets.names()
    for name in names:
        if name not in known:
            raise SystemExit(f"no target {name!r}; there are {', '.join(known)}")
    return list(names) or known


# --- search ----------------------------------------------------------------------------------------------------------


def search(names: Sequence[str], seconds: int, brief: bool = False) -> int:
    """Fuzz each target; `seconds` are for each, or, in brief, for all together. 1 when something broke."""
    names = chosen(names)
    each = max(seconds // len(names), 1) if brief else seconds
    broken = []
    write_seeds(names)
    for name in names:
        begun = time.monotonic()
        code, figures, tail = fuzz(name, each, quiet=brief)
        took = time.monotonic() - begun
        print(
            f"{name:12} {figures.executions:9} inputs in {took:4.0f} s, blocks {figures.blocks_before} -> {figures.blocks},"
            f" corpus {figures.inputs}{'' if code == 0 else ', BROKEN'}",
            flush=True,
        )
        if code:
            broken.append(name)
            print("\n".join(tail), flush=True)
            for path in sorted((OUT / name).glob("crash-*"), key=lambda p: p.stat().st_mtime)[-1:]:
                print(f"replay: python -m tests.fuzz replay {name} {path.relative_to(build.ROOT)}")
    return 1 if broken else 0


def fuzz(name: str, seconds: int, quiet: bool = False) -> tuple[int, Figures, list[str]]:
    """One run of libFuzzer over written seeds: (exit code, figures, the last lines it wrote)."""
    out = OUT / name
    found = out / "found"
    found.mkdir(parents=True, exist_ok=True)
    limit = targets_limit(name)
    options = [
        f"-max_total_time={seconds}",
        f"-max_len={limit}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={out}/",
        "-print_final_stats=0",
        "-use_value_profile=0",
        "-detect_leaks=0",
        *([f"-dict={path}"] if (path := out / "words").stat().st_size else []),
    ]
    kept, seeds = corpus.FOLDER / name, out / "seeds"
    if quiet:
        # All that is known runs before anything new does: a short search begins with some of it. It tries the same each time, as
        # far as its seconds reach, so that a run of the tests is no lottery; what is new is for a long search.
        options.append("-seed=1")
        found = out / "brief"
        shutil.rmtree(found, ignore_errors=True)
        known = corpus.inputs(name) or sorted(seeds.iterdir())
        corpus.write(
            found, (path.read_bytes() for path in known[:: 1 + len(known) // BRIEF_INPUTS])
        )
        folders = [str(found)]
    else:
        folders = [str(found), str(seeds), *([str(kept)] if kept.exists() else [])]
    command = [sys.executable, "-m", "tests.fuzz.engine", name, *options, *folders]
    figures = Figures()
    tail: list[str] = []
    with subprocess.Popen(
        command,
        env=build.environment(),
        cwd=build.ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        last = time.monotonic()
        for line in process.stdout:
            tail.append(line.rstrip())
            del tail[:-80]
            note(figures, line)
            if not quiet and time.monotonic() - last > 5 and STATUS.match(line):
                last = time.monotonic()
                print(f"  {line.rstrip()}", flush=True)
    return process.returncode, figures, tail


def note(figures: Figures, line: str) -> None:
    status = STATUS.match(line)
    if status is None:
        return
    figures.executions = int(status[1])
    if status[3]:
        figures.blocks = int(status[3])
        if status[2] == "INITED":
            figures.blocks_before = figures.blocks
    if status[5]:
        figures.inputs = int(status[5])


def write_seeds(names: Sequence[str]) -> None:
    """Seeds and words of targets into files, by a process that may import them."""
    in_core(["seeds", *names])


def targets_limit(name: str) -> int:
    return int((OUT / name / "max_bytes").read_text())


def in_core(arguments: list[str]) -> int:
    """tests.fuzz.inside in a process that runs the instrumented core."""
    command = [sys.executable, "-m", "tests.fuzz.inside", *arguments]
    return subprocess.run(command, env=build.environment(), cwd=build.ROOT, check=False).returncode


# --- replay ----------------------------------------------------------------------------------------------------------


def replay(name: str, files: Iterable[Path]) -> int:
    """Inputs once more, on the instrumented core; 0 when nothing is wrong."""
    chosen([name])
    return in_core(["replay", name, *map(str, files)])


def replay_all(names: Sequence[str]) -> int:
    """The kept inputs of each target, on the instrumented core."""
    return max(in_core(["replay", name]) for name in chosen(names))


def replay_here(name: str, files: Iterable[Path]) -> int:
    """Inputs once more, on this process's core."""
    target = targets.load(name)
    for path in files:
        target.run(path.read_bytes())
        print(f"{name}: {path} passes")
    return 0


# --- keep ------------------------------------------------------------------------------------------------------------


def keep(names: Sequence[str]) -> int:
    """Of all inputs known, the smallest set that reaches as much becomes the kept one."""
    names = chosen(names)
    write_seeds(names)
    for name in names:
        kept, fresh = corpus.FOLDER / name, OUT / name / "minimised"
        for old in fresh.glob("*"):
            old.unlink()
        fresh.mkdir(parents=True, exist_ok=True)
        folders = [
            str(fresh),
            *(str(p) for p in (kept, OUT / name / "seeds", OUT / name / "found") if p.exists()),
        ]
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.engine",
            name,
            "-merge=1",
            f"-artifact_prefix={OUT / name}/",
            f"-max_len={targets_limit(name)}",
            *folders,
        ]
        done = subprocess.run(
            command, env=build.environment(), cwd=build.ROOT, check=False, capture_output=True
        )
        if done.returncode:
            print(done.stderr[-3000:].decode(errors="replace"))
            return 1
        contents = [path.read_bytes() for path in fresh.iterdir()]
        for path in corpus.inputs(name):
            path.unlink()
        corpus.write(kept, contents)
        print(f"{name:12} {len(contents):5} inputs, {sum(map(len, contents)):8} bytes", flush=True)
    return 0
