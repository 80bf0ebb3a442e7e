"""Signalling a running server from the command line: ``-sl reload=1234`` or ``-sl
quit=/run/penstock.pid``.
"""

import os
import re
import signal

from penstock.server.errors import OptionError

SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


def send_signal(command: str) -> None:
    """Do what ``-sl`` asks; OptionError when the name, the pid or the process is not there."""
    name, _, target = command.partition("=")
    if name not in SIGNALS:
        raise OptionError(
            f'unknown signal "{name}" for option -sl; known ones are {", ".join(SIGNALS)}'
        )
    if not target:
        raise OptionError(f"option -sl needs a process: -sl {name}=<pid or pid file>")
    pid = _pid(target)
    try:
        os.kill(pid, SIGNALS[name])
    except ProcessLookupError:
        raise OptionError(f"there is no process {pid} to signal") from None
    except PermissionError:
        raise OptionError(f"not allowed to signal process {pid}; run this as its user") from None


def _pid(target: str) -> int:
    text = target
    if not re.fullmatch(r"\d+", target):
        try:
            with open(target, encoding="ascii") as file:
                text = file.read().strip()
        except (OSError, UnicodeDecodeError):
            raise OptionError(
                f'"{target}" is neither a process id nor a readable pid file'
            ) from None
    if not re.fullmatch(r"[1-9]\d{0,9}", text):
        raise OptionError(f'pid file {target} holds "{text[:40]}", not a process id')
    return int(text)
