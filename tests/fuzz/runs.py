"""Processes over targets: search, replay, minimise.

Imports neither the core nor a target, but for `replay_here`: what runs the core is another process, whose environment
`build.environment` makes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz import build, corpus, targets

OUT = build.ROOT / "build" / "fuzz"
INPUT_SECONDS = 20
MEMORY_MIB = 3072
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


def search(names: Sequence[str], seconds: int) -> int:
    """Fuzz each target for that time. 1 when something broke."""
    names = chosen(names)
    write_seeds(names)
    return max(fuzz(name, seconds) for name in names)


def short_search(names: Sequence[str], seconds: int) -> int:
    """Fuzz all targets in that time, at least a second each, from some of what is known. 1 when something broke."""
    names = chosen(names)
    for name in names:
        (OUT / name).mkdir(parents=True, exist_ok=True)
    each = max(seconds // len(names), 1)
    command = [sys.executable, "-m", "tests.fuzz.short", str(each), *names]
    broken, watch, done = 0, Watch(""), set()
    with libfuzzer(command) as (_, lines):
        for line in lines:
            match line.split():
                case ["===", name]:
                    watch = Watch(name)
                case ["===", name, status]:
                    broken |= watch.ended(int(status))
                    done.add(name)
                case _:
                    watch.take(line)
    if left := set(names) - done:  # what has loaded all of them has ended
        print(f"not searched: {', '.join(sorted(left))}", *watch.tail, sep="\n", flush=True)
    return 1 if left else broken


def options(name: str, seconds: int) -> list[str]:
    """What libFuzzer is told for a search."""
    out = OUT / name
    return [
        f"-max_total_time={seconds}",
        f"-max_len={targets_limit(name)}",
        f"-timeout={INPUT_SECONDS}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={out}/",
        "-print_final_stats=0",
        "-use_value_profile=0",
        "-detect_leaks=0",
        *([f"-dict={path}"] if (path := out / "words").stat().st_size else []),
    ]


def fuzz(name: str, seconds: int) -> int:
    """One run of libFuzzer over all that is known of a target. 1 when something broke."""
    out, kept = OUT / name, corpus.FOLDER / name
    (out / "found").mkdir(parents=True, exist_ok=True)
    folders = [str(out / "found"), str(out / "seeds"), *([str(kept)] if kept.exists() else [])]
    command = [sys.executable, "-m", "tests.fuzz.engine", name, *options(name, seconds), *folders]
    watch = Watch(name)
    with libfuzzer(command) as (wait, lines):
        last = time.monotonic()
        for line in lines:
            watch.take(line)
            if time.monotonic() - last > 5 and STATUS.match(line):
                last = time.monotonic()
                print(f"  {line.rstrip()}", flush=True)
    return watch.ended(wait())


@contextmanager
def libfuzzer(command: list[str]) -> Iterator[tuple[Callable[[], int], Iterator[str]]]:
    """A process on the instrumented core: its end, and the lines that it writes."""
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
        yield process.wait, iter(process.stdout)


class Watch:
    """What libFuzzer says of one target."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.figures = Figures()
        self.tail: deque[str] = deque(maxlen=80)
        self._begun = time.monotonic()

    def take(self, line: str) -> None:
        self.tail.append(line.rstrip())
        note(self.figures, line)

    def ended(self, status: int) -> int:
        """Print the figures, and how what broke is replayed; 1 when something did."""
        name, figures = self.name, self.figures
        print(
            f"{name:12} {figures.executions:9} inputs in {time.monotonic() - self._begun:4.0f} s, blocks"
            f" {figures.blocks_before} -> {figures.blocks}, corpus {figures.inputs}"
            f"{', BROKEN' if status else ''}",
            flush=True,
        )
        if status:
            print("\n".join(self.tail), flush=True)
            for path in sorted((OUT / name).glob("crash-*"), key=lambda p: p.stat().st_mtime)[-1:]:
                print(f"replay: python -m tests.fuzz replay {name} {path.relative_to(build.ROOT)}")
        return int(status != 0)


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
