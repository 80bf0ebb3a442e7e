"""Runs the official clients' own test suites against this server, and beside it against nats-server.

    python -m tests.conformance.run SUITES [--peer FILE] [--only TEXT] [--jobs N] [--out FOLDER]

SUITES holds what ``suites`` describes. The server under test is a shim named `nats-server` that
starts pelton-server from this checkout; with --peer, or one on PATH, the suites run against a real
nats-server too. Each job has a private namespace when this machine allows it (then several can run at
once), and the shared loopback one after the other when not. The exit status is 1 when a test fails
with ours alone, or, without a peer, when any fails.
"""

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.conformance.reports import FAILED, Results, count, only_ours, read_report, table
from tests.conformance.suites import REPORT, SHIM, VERSION, Job, find_jobs

ROOT = Path(__file__).resolve().parents[2]
JOB_SECONDS = 3600
OURS, PEER = "pelton", "nats-server"


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for and print the results; the exit status."""
    asked = _arguments(arguments)
    jobs, notes = find_jobs(Path(asked.suites).resolve(), asked.only, asked.timeout)
    for note in notes:
        print(f"left out: {note}", file=sys.stderr)
    if not jobs:
        print(f"no suites to run in {asked.suites}", file=sys.stderr)
        return 2
    out = Path(asked.out or tempfile.mkdtemp(prefix="conformance-")).resolve()
    columns: dict[str, Results] = {}
    for name, command in _servers(asked.peer):
        columns[name] = _run_all(jobs, _shim(out / name, command), out / name, asked.jobs)
    print("\n".join(table(columns)))
    print(f"(passed/failed/skipped; logs and reports in {out})")
    return _verdict(columns)


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", help="folder with checkouts of official clients")
    parser.add_argument("--peer", default="", help="a nats-server to compare with; `none`: nobody")
    parser.add_argument("--only", default="", help="run the jobs with this text in their title")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once (private namespaces)")
    parser.add_argument("--out", default="", help="folder for logs and reports")
    parser.add_argument("--timeout", type=int, default=60, help="seconds for one test")
    return parser.parse_args(arguments)


def _servers(peer: str) -> list[tuple[str, list[str]]]:
    """(name, how to start it) of each server to test."""
    servers = [(OURS, [sys.executable, "-m", "pelton.server"])]
    found = "" if peer == "none" else peer or shutil.which("nats-server") or ""
    if found:
        servers.append((PEER, [os.path.abspath(found)]))
    return servers


def _shim(folder: Path, command: list[str]) -> Path:
    """A folder with a `nats-server` that starts that command."""
    shim = folder / "shim"
    shim.mkdir(parents=True, exist_ok=True)
    script = shim / "nats-server"
    path = f"PYTHONPATH={ROOT / 'src'} " if command[0] == sys.executable else ""
    words = " ".join(f"'{word}'" for word in command)
    script.write_text(f'#!/bin/sh\n{path}exec {words} "$@"\n')
    script.chmod(0o755)
    return shim


def _run_all(jobs: list[Job], shim: Path, folder: Path, at_once: int) -> Results:
    private = _namespace()
    if not private:
        print("no private namespace here: jobs share the loopback, one after the other")
        at_once = 1
    said = subprocess.run(
        [shim / "nats-server", "--version"], capture_output=True, text=True, check=True
    )
    version = said.stdout.strip()
    print(f"{folder.name}: {version}", flush=True)
    results: Results = {}
    with concurrent.futures.ThreadPoolExecutor(max(at_once, 1)) as pool:
        for found in pool.map(lambda job: _run(job, shim, folder, private, version), jobs):
            results.update(found)
    return results


def _namespace() -> list[str]:
    """The command that runs another one in namespaces of its own; empty when that can't be done."""
    words = ["unshare", "--net", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return []
    probe = subprocess.run([*words, "true"], capture_output=True, check=False)
    return words if probe.returncode == 0 else []


def _run(job: Job, shim: Path, folder: Path, private: list[str], version: str) -> Results:
    started = time.monotonic()
    report = folder / f"{job.title}.xml"
    report.unlink(missing_ok=True)
    fill = {SHIM: str(shim), REPORT: str(report), VERSION: version}
    scratch = tempfile.mkdtemp(prefix="conf-")
    plan = folder / f"{job.title}.json"
    plan.write_text(
        json.dumps(
            {
                "private": bool(private),
                "folder": job.folder,
                "command": [_fill(word, fill) for word in job.command],
                "variables": {
                    **{name: _fill(value, fill) for name, value in job.variables.items()},
                    "PATH": f"{shim}{os.pathsep}{os.environ['PATH']}",
                    "TMPDIR": scratch,
                },
                "log": str(folder / f"{job.title}.log"),
                "seconds": JOB_SECONDS,
            }
        )
    )
    inside = [sys.executable, str(Path(__file__).with_name("inside.py")), str(plan)]
    subprocess.run([*private, *inside], check=False, stdin=subprocess.DEVNULL)
    shutil.rmtree(scratch, ignore_errors=True)
    results = read_report(report, job.title)
    counts = "/".join(str(n) for n in count(results.values()))
    print(f"  {job.title:45} {counts:>12}  {time.monotonic() - started:6.1f} s", flush=True)
    return results


def _fill(text: str, fill: dict[str, str]) -> str:
    for mark, value in fill.items():
        text = text.replace(mark, value)
    return text


def _verdict(columns: dict[str, Results]) -> int:
    ours = columns[OURS]
    if PEER in columns:
        lost = only_ours(ours, columns[PEER])
        print(f"failed by ours alone: {len(lost)}")
    else:
        lost = [name for name, result in sorted(ours.items()) if result.status == FAILED]
        print(f"failed: {len(lost)}")
    for name in lost:
        result = ours.get(name)
        print(f"  {name}  {result.message if result else '(did not run)'}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
