"""``pelton pipeline run``: runs a pipeline at a terminal, into a log, or for a program."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pelton.errors import not_installed
from pelton.pipeline.display import Screen
from pelton.pipeline.running.job import Result, own_session, taken
from pelton.pipeline.running.numbers import QueriesView, QueryNumbers, as_data, summary_table
from pelton.pipeline.running.supervising import QueryEndedError, brief, stop_signals

if TYPE_CHECKING:
    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.job import Job
    from pelton.pipeline.running.upgrade import Change


class RunFailed(RuntimeError):
    """The pipeline ended with an error; the text has one line, or one for each problem."""


def run_command(pipeline: Pipeline, *, once: bool, as_json: bool) -> None:
    """Run until the input is processed (``once``) or a signal comes. Call from the main thread.

    Raises :class:`RunFailed`, and what :func:`pelton.pipeline.running.job.taken` raises.
    """
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        ensure_java()
    except JavaNotFoundError as error:
        raise RunFailed(str(error)) from None
    with taken(pipeline) as job:
        _Run(job, once=once, as_json=as_json).run()


class _Run:
    def __init__(self, job: Job, *, once: bool, as_json: bool) -> None:
        self._job = job
        self._once = once
        self._as_json = as_json
        self._console = Console(quiet=as_json)
        self._screen = Screen(self._console)
        self._stopping = threading.Event()

    def run(self) -> None:
        from pelton.pipeline.running.stages import StepError

        log = self._job.pipeline.state / "log" / "spark.log"
        with ExitStack() as cleanup:
            cleanup.enter_context(stop_signals(self._stopping))
            with self._screen:
                self._show([])
                self._tell_changes()
                try:
                    spark = cleanup.enter_context(own_session(self._job))
                    # A new session handles Ctrl-C itself, to cancel what runs.
                    cleanup.enter_context(stop_signals(self._stopping))
                    result = self._job.run(
                        spark,
                        once=self._once,
                        stopping=self._stopping,
                        show=self._show,
                        tell=_print_json if self._as_json else None,
                        warn=self._warn,
                        alert=self._alert,
                    )
                except StepError as error:
                    raise RunFailed(str(error)) from None
                except QueryEndedError as error:
                    raise RunFailed(f"{error} (see {log})") from None
                except KeyboardInterrupt:
                    raise RunFailed("stopped at once; the next run continues from here") from None
                except ModuleNotFoundError as error:
                    raise RunFailed(str(not_installed(error, "spark"))) from None
                except Exception as error:  # Spark may raise at any moment
                    if self._stopping.is_set():
                        raise RunFailed("stopped; the next run continues from here") from None
                    raise RunFailed(f"Spark failed: {brief(error)} (see {log})") from error
            self._summarise(result)

    def _show(self, queries: list[QueryNumbers]) -> None:
        stage = "starting Spark"
        if queries:
            stage = "draining" if self._once else "running"
        if self._stopping.is_set():
            stage = "stopping"
        self._screen.show(QueriesView(self._job.pipeline.name, stage, queries))

    def _warn(self, line: str) -> None:
        if self._as_json:
            _print_json({"event": "warning", "text": line})
        else:
            self._print(f"warning: {line}")

    def _alert(self, message: dict[str, Any]) -> None:
        if self._as_json:
            _print_json(message)
        else:
            self._print(f"alert: {message['text']}")

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _tell_changes(self) -> None:
        """A line for each change since the last run; none before the first one."""
        upgrade = self._job.upgrade
        for change in upgrade.changed if upgrade.last_run is not None else ():
            if self._as_json:
                _print_json(change_as_data(change))
            else:
                self._print(f"change: {change.line()}")

    def _summarise(self, result: Result) -> None:
        if self._as_json:
            queries = [as_data(query) for query in result.queries]
            _print_json(
                {"event": "summary", "stopped": self._stopping.is_set(), "queries": queries}
            )
            return
        self._console.print(summary_table(list(result.queries)))
        if self._stopping.is_set():
            self._console.print("stopped; the next run continues from here", highlight=False)


def change_as_data(change: Change) -> dict[str, Any]:
    """A change as JSON has it, as an event."""
    keys = {key: {"before": old, "now": new} for key, (old, new) in change.keys.items()}
    return {"event": "change", **vars(change), "keys": keys}


def _print_json(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message, ensure_ascii=False, separators=(",", ":")) + "\n")
    sys.stdout.flush()
