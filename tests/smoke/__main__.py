"""Run the smoke suite on each Python of this machine: `make test-pythons`.

    interpreter -> build/pythons/<version>/venv       an environment, kept
                   build/pythons/<version>/source     a copy of the tree; its wheel, built without optimisation
                   build/pythons/<version>/suite      this folder, run by the environment's pytest

The C files are the checkout's, so that Cython runs once for all interpreters. Nothing else of the checkout changes.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from tests.smoke.interpreters import ROOT, Interpreter, interpreters

PLACE = ROOT / "build" / "pythons"
TOOLS = ["mypy>=1.15", "pytest>=8", "pytest-timeout>=2.3"]
SOURCES = ["setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"]
KINDS = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h", ".typed", ".properties", ".jinja"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LINES = 60  # of a step that fails, shown
# The suite starts no JVM and makes no site, so these extras, and those that need them, stay away.
HEAVY = ("pyspark", "pelton[test", "mkdocs", "actionlint")


@dataclass
class Outcome:
    """What became of one interpreter."""

    interpreter: Interpreter
    missing: list[str] = field(default_factory=list)  # extras that cannot be installed there
    problem: str = ""  # the step that failed
    log: str = ""
    suite: str = ""  # pytest's last line

    @property
    def promised(self) -> bool:
        """Whether the package names this version as one that it works on."""
        line = f"Programming Language :: Python :: {self.interpreter.name}"
        return line in PROJECT["classifiers"]

    @property
    def line(self) -> str:
        """One line for the summary."""
        parts = [f"Python {self.interpreter.version}"]
        parts += [f"cannot {self.problem}"] if self.problem else [self.suite]
        if self.missing:
            parts.append(f"not to be installed: {', '.join(self.missing)}")
        return "; ".join(parts) + (
            "" if self.promised else " (a version that we promise nothing for)"
        )


def light_extras() -> list[str]:
    """The extras of the project that need no Spark."""
    extras: dict[str, list[str]] = PROJECT["optional-dependencies"]

    def heavy(extra: str, seen: frozenset[str] = frozenset()) -> bool:
        needs = extras[extra]
        inner = {
            name.strip()
            for need in needs
            if need.startswith("pelton[")
            for name in need[len("pelton[") : need.index("]")].split(",")
        }
        return any(need.startswith(HEAVY) for need in needs) or any(
            heavy(name, seen | {extra}) for name in inner - seen
        )

    return [extra for extra in extras if not heavy(extra)]


class Failed(Exception):
    """A step failed: (what, its output)."""


def call(what: str, *command: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a step, and return what it wrote."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PELTON_", "COV_")) or name == "PELTON_BUILD_JOBS"
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**kept, **environment},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise Failed(what, done.stdout)
    return done.stdout


def pip(python: Path, *arguments: str | Path) -> None:
    """Install into an environment; compiled packages as wheels only: their compilers are not ours."""
    binary = ["--only-binary", ":all:"]
    options = [
        "--quiet",
        "--no-compile",
        "--disable-pip-version-check",
        "--no-warn-script-location",
    ]
    call("install", python, "-m", "pip", "install", *options, *binary, *arguments)


def environment(interpreter: Interpreter, place: Path) -> Path:
    """The environment of an interpreter: its Python."""
    venv, stamp = place / "venv", place / "made"
    python = venv / "bin" / "python"
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    wanted = "\n".join([interpreter.path, interpreter.version, *TOOLS, *build])
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(venv, ignore_errors=True)
    call("make an environment", interpreter.path, "-m", "venv", "--without-pip", venv)
    # Debian's interpreters have no ensurepip; the pip of this one may be too old for the newest Python.
    wheels = place / "pip"
    call(
        "fetch pip", sys.executable, "-m", "pip", "download", "-q", "-d", wheels, "--no-deps", "pip"
    )
    wheel = next(wheels.glob("pip-*.whl"))
    call("install pip", python, f"{wheel}/pip", "install", "-q", "--no-index", wheel)
    pip(python, *TOOLS, *build)
    stamp.write_text(wanted)
    return python


def copied_tree(place: Path) -> Path:
    """The sources as they are in the checkout, with their times, so that only changes are compiled."""
    copy = place / "source"
    wanted = {ROOT / name for name in SOURCES}
    wanted |= {path for path in (ROOT / "src").rglob("*") if path.suffix in KINDS}
    names = {path.relative_to(ROOT) for path in wanted if "__pycache__" not in path.parts}
    for old in (copy / "src").rglob("*"):
        if old.is_file() and old.relative_to(copy) not in names:
            old.unlink()
    for name in names:
        target = copy / name
        had = target.stat().st_mtime_ns if target.exists() else 0
        has = (ROOT / name).stat().st_mtime_ns
        if had == has or (name.suffix == ".c" and had > has):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target)
        if name.suffix == ".c":  # newer than the environment's Cython, which would run again
            target.touch()
    return copy


def digest(copy: Path) -> str:
    """A digest of all sources but what Cython makes of them."""
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.suffix != ".c")
    mine = [path for path in files if "build" not in path.relative_to(copy).parts[:1]]
    parts = [f"{path.relative_to(copy)} {path.stat().st_mtime_ns}" for path in mine]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def built_wheel(python: Path, place: Path) -> Path:
    """The wheel of the sources as they are."""
    copy, folder, stamp = copied_tree(place), place / "dist", place / "built"
    now = digest(copy)
    if stamp.exists() and stamp.read_text() == now:
        return next(folder.glob("*.whl"))
    shutil.rmtree(folder, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    # Whether it works is the question here, not how fast: without optimisation it compiles in a quarter of the time.
    call(
        "build a wheel",
        python,
        *("-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "-w", folder, "."),
        cwd=copy,
        PELTON_CFLAGS="-O0",
        PELTON_CORE="required",
    )
    stamp.write_text(now)
    return next(folder.glob("*.whl"))


def installed(python: Path, wheel: Path, extras: list[str]) -> list[str]:
    """Install the wheel; returns the extras that can't be installed."""
    call("remove the last wheel", python, "-m", "pip", "uninstall", "-q", "-y", "pelton")
    try:
        pip(python, f"{wheel}[{','.join(extras)}]")
    except Failed:
        pip(python, wheel)
    else:
        return []
    missing = []
    for extra in extras:
        try:
            pip(python, f"{wheel}[{extra}]")
        except Failed as problem:
            said = [line for line in problem.args[1].splitlines() if line.startswith("ERROR")]
            missing.append(f"{extra} ({said[-1].removeprefix('ERROR: ') if said else 'pip'})")
    return missing


def tried(interpreter: Interpreter, extras: list[str], arguments: list[str]) -> Outcome:
    """Build, install and run on one interpreter."""
    outcome = Outcome(interpreter)
    place = PLACE / interpreter.name
    place.mkdir(parents=True, exist_ok=True)
    try:
        python = environment(interpreter, place)
        outcome.missing = installed(python, built_wheel(python, place), extras)
        suite = place / "suite"
        shutil.rmtree(suite, ignore_errors=True)
        shutil.copytree(Path(__file__).parent, suite, ignore=shutil.ignore_patterns("__*"))
        said = call(
            "pass the suite",
            *(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "pytest.ini"),
            *("suite.py", *arguments),
            cwd=suite,
        )
        outcome.log = said
        outcome.suite = said.strip().splitlines()[-1].strip("= ")
    except Failed as problem:
        outcome.problem, log = problem.args
        (place / "log").write_text(log)
        outcome.log = "\n".join([*log.splitlines()[-LINES:], f"all of it is in {place / 'log'}"])
    return outcome


def main() -> int:
    """Run it; 0 when all that is promised works."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.smoke", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--only", default="", help="versions such as 3.12,3.14; or newest")
    parser.add_argument("arguments", nargs="*", help="arguments for pytest")
    args = parser.parse_args()
    found = interpreters()
    print("found:", ", ".join(f"{each.name} ({each.path})" for each in found), flush=True)
    if args.only == "newest":
        found = [each for each in found if Outcome(each).promised][-1:]
    elif args.only:
        found = [each for each in found if each.name in args.only.split(",")]
    extras = light_extras()
    outcomes = []
    for each in found:
        print(f"-- Python {each.version}: {each.path}", flush=True)
        outcomes.append(tried(each, extras, args.arguments))
        print(outcomes[-1].log.strip(), flush=True)
    print("-- the smoke suite on each Python, with the extras", ", ".join(extras))
    for outcome in outcomes:
        print(outcome.line)
    if not outcomes:
        print("no such Python here")
        return 1
    return int(any(each.promised and (each.problem or each.missing) for each in outcomes))


if __name__ == "__main__":
    sys.exit(main())
