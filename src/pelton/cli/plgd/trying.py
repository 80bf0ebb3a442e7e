"""When the query of ``pelton plgd run`` fails, the command prints the reason, waits, and starts
the query again.

Most causes can end by themselves: a server that is down, a full disk, a missing stream of alerts.
Three kinds of errors need a decision of the user, and end the run: messages that were lost before
they were read, impossible options, and a checkpoint that does not fit the tables.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from pelton.cli.output import print_json_line

if TYPE_CHECKING:
    import threading

WAIT_SECONDS, WAIT_SECONDS_MAX = 1.0, 30.0
FINAL = (
    *("DataLossError", "OptionError", "JvmDied"),
    *("the checkpoint is of ", "the checkpoint is older than the table"),
)


def is_final(error: BaseException, said: str) -> bool:
    """Whether the same query would fail again in the same way; ``said`` is the line for a person."""
    kinds = [
        line.strip().partition(": ")[0].rpartition(".")[2]
        for line in str(error.__cause__ or "").splitlines()
        if line.strip().startswith("pelton.")
    ]
    return any(word in (type(error).__name__, *kinds[-1:]) or word in said for word in FINAL)


class Tries:
    """Waits between two tries; tells each reason once, and that the work goes on."""

    def __init__(self, stopping: threading.Event, *, as_json: bool) -> None:
        """A wait ends when ``stopping`` is set."""
        self.stopping = stopping
        self.as_json = as_json
        self.told = ""
        self.wait_seconds = WAIT_SECONDS
        self.began = time.monotonic()

    def wait(self, reason: str) -> None:
        """Wait for the next try; longer each time."""
        if reason != self.told:
            self.told = reason
            if self.as_json:
                print_json_line({"event": "waiting", "reason": reason})
            else:
                click.echo(f"waiting: {reason}", err=True)
        self.stopping.wait(self.wait_seconds)
        self.wait_seconds = min(2 * self.wait_seconds, WAIT_SECONDS_MAX)

    def done(self) -> None:
        """A batch is in the tables."""
        if self.told:
            if not self.as_json:
                click.echo("going on", err=True)
            self.told = ""
        self.wait_seconds = WAIT_SECONDS
