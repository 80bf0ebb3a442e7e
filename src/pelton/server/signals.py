"""Signalling a running server from the command line.

-sl reload=1234                     a process
-sl quit=/run/pelton.pid          the process in a pid file
-sl ldm=12*                         servers whose process id begins with 12; * is all of them
-sl reload                          the only running server
"""

import os
import re
import signal

from pelton.server.errors import OptionError, StartError

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
PROGRAM = "pelton-server"
MODULE = "pelton.server"


def send_signal(command: str) -> None:
    """Send the signal of ``-sl``. OptionError for an unknown signal, StartError when there is no
    such process.
    """
    name, _, target = command.partition("=")
    if name not in SIGNALS:
        raise OptionError(
            f'unknown signal "{name}" for option -sl; known ones are {", ".join(SIGNALS)}'
        )
    problems = [problem for pid in _pids(target) if (problem := _send(pid, SIGNALS[name]))]
    if problems:
        raise StartError("; ".join(problems))


def _send(pid: int, number: signal.Signals) -> str:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return f"there is no process {pid} to signal"
    except PermissionError:
        return f"not allowed to signal process {pid}; run this as its user"
    return ""


def _pids(target: str) -> list[int]:
    if target.endswith("*") and re.fullmatch(r"\d*\*", target):
        found = [pid for pid in running_servers() if str(pid).startswith(target[:-1])]
        if not found:
            raise StartError(f"no {PROGRAM} process runs whose id begins with {target}")
        return found
    if target:
        return [_pid(target)]
    found = running_servers()
    if not found:
        raise StartError(f"no {PROGRAM} processes running")
    if len(found) > 1:
        listed = "".join(f"\n{pid}" for pid in found)
        raise StartError(f"multiple {PROGRAM} processes running:{listed}")
    return found


def _pid(target: str) -> int:
    text = target
    if not re.fullmatch(r"\d+", target):
        try:
            with open(target, encoding="ascii") as file:
                text = file.read().strip()
        except (OSError, UnicodeDecodeError):
            raise StartError(
                f'"{target}" is neither a process id nor a readable pid file'
            ) from None
    if not re.fullmatch(r"[1-9]\d{0,9}", text):
        raise StartError(f'pid file {target} holds "{text[:40]}", not a process id')
    return int(text)


def running_servers(proc: str = "/proc") -> list[int]:
    """Process ids of the other servers on this machine, lowest first."""
    found: list[int] = []
    for name in os.listdir(proc):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(os.path.join(proc, name, "cmdline"), "rb") as file:
                    words = file.read().decode("utf-8", "replace").split("\0")
            except OSError:
                continue  # the process has ended meanwhile
            if is_server(words):
                found.append(int(name))
    return sorted(found)


def is_server(words: list[str]) -> bool:
    """Whether this command line is that of a server: the script or the module, run by a Python."""
    if os.path.basename(words[0]) == PROGRAM:
        return True
    if not os.path.basename(words[0]).startswith("python"):
        return False
    # The words after the program or module are its arguments.
    rest = words[1:]
    while rest and rest[0].startswith("-") and rest[0] != "-m":
        rest = rest[2:] if rest[0] in ("-X", "-W") else rest[1:]
    if rest[:1] == ["-m"]:
        return rest[1:2] == [MODULE]
    return bool(rest) and os.path.basename(rest[0]) == PROGRAM
