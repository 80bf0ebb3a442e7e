"""Those who are told of a run while it goes on: the caller, the live record, alerts and lineage."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING

from pelton.errors import not_installed
from pelton.pipeline.description.problems import PipelineError, Problem
from pelton.pipeline.running.alerting import AlertMonitor
from pelton.pipeline.running.definition import record
from pelton.pipeline.running.live import LiveRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.engine import Engine
    from pelton.pipeline.running.lineage import LineageEmitter
    from pelton.pipeline.running.numbers import QueryNumbers
    from pelton.spark.watching.report import Message


class Observers:
    """Tell them that a run has begun, goes on, and has ended."""

    def __init__(
        self,
        pipeline: Pipeline,
        engine: Engine,
        *,
        show: Callable[[list[QueryNumbers]], None] | None,
        warn: Callable[[str], None] | None,
        alert: Callable[[Message], None] | None,
    ) -> None:
        """``show`` gets the numbers, ``warn`` lines, ``alert`` begins and ends; the last two have defaults."""
        self._pipeline = pipeline
        self._engine = engine
        self._show = show
        self._warn = warn or _warn
        self._alert = alert or _warn_of_alert
        self._live = LiveRecord(pipeline.state)
        self._monitor: AlertMonitor | None = None
        self._lineage: LineageEmitter | None = None

    def begin(self, spark_version: str, *, once: bool) -> None:
        """The queries run."""
        pipeline, engine = self._pipeline, self._engine
        with contextlib.suppress(OSError):  # it only serves to tell what has changed
            record(pipeline)
        for each in pipeline.warnings:
            self._warn(f"{pipeline.file}:{each.line}: {each.text}")
        for line in engine.warnings:
            self._warn(line)
        if pipeline.alerts is not None:
            self._monitor = AlertMonitor(pipeline, pipeline.alerts, engine.board)
        if pipeline.lineage is not None:
            from pelton.pipeline.running.lineage import LineageEmitter

            self._lineage = LineageEmitter(
                pipeline,
                pipeline.lineage,
                engine.queries,
                engine.schemas,
                spark=spark_version,
                once=once,
            )

    def look(self) -> None:
        """The run goes on; call a few times per second."""
        self._pass_on()
        numbers = self._engine.board.numbers()
        self._live.write(numbers)
        if self._show is not None:
            self._show(numbers)

    def end(self, failure: BaseException | None) -> None:
        """The queries have ended, because of ``failure`` if there is one."""
        if self._monitor is not None:
            self._monitor.close()
        numbers = self._engine.board.numbers()
        self._live.write(numbers, last=True)
        if self._lineage is not None:
            self._lineage.end(numbers, failure)
        self._pass_on()
        if self._show is not None:
            self._show(numbers)

    def _pass_on(self) -> None:
        lines: list[SimpleQueue[str]] = [self._engine.notices]
        lines += [each.notices for each in (self._lineage, self._monitor) if each is not None]
        for queue in lines:
            while not queue.empty():
                self._warn(queue.get())
        while self._monitor is not None and not self._monitor.messages.empty():
            self._alert(self._monitor.messages.get())


def _warn(line: str) -> None:
    warnings.warn(line, stacklevel=4)


def _warn_of_alert(message: Message) -> None:
    warnings.warn(f"alert: {message['text']}", stacklevel=4)


def check_lineage(pipeline: Pipeline) -> None:
    """Raise :class:`PipelineError` if the library for lineage is wanted and missing."""
    if pipeline.lineage is None:
        return
    try:
        import openlineage.client  # noqa: F401  only to see that it is there
    except ModuleNotFoundError as missing:
        text = f"lineage: {not_installed(missing, 'lineage')}"
        raise PipelineError(pipeline.file, [Problem(1, text)]) from None
