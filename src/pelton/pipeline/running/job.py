"""A run of a pipeline: locks the state folder, plans the queries, runs them to the end.

For programs, on any session::

    from pelton.pipeline import load, run

    result = run(load("orders.yaml"), spark, once=True)
    print(result.rows("orders"))
"""

from __future__ import annotations

import contextlib
import copy
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.pipeline.children import Children, FolderInUseError
from pelton.pipeline.description.functions import check_functions
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.running.numbers import Board, QueryNumbers
from pelton.pipeline.running.observing import Observers, check_lineage
from pelton.pipeline.running.queries import StateError, committed, plan, recall, remember
from pelton.pipeline.running.upgrade import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from pelton.pipeline.description.model import Pipeline
    from pelton.pipeline.running.queries import Query
    from pelton.pipeline.running.upgrade import Upgrade
    from pelton.spark.watching.report import Message

_LOOK_EVERY_SECONDS = 0.2
_STOPPED = "stopped SparkContext"  # Spark's text if no master answers for a minute


class NoClusterError(RuntimeError):
    """No session could start on the cluster that the file names. The text is one line."""


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    queries: tuple[QueryNumbers, ...]

    def rows(self, sink: str) -> int:
        """The rows that a sink was given in this run."""
        return sum(query.sinks.get(sink, 0) for query in self.queries)


class Job:
    """A pipeline whose state folder this process has locked."""

    def __init__(
        self, pipeline: Pipeline, children: Children, queries: list[Query], upgrade: Upgrade
    ) -> None:
        """Use :func:`taken` to make one."""
        self.pipeline = pipeline
        self.children = children
        self.queries = queries
        self.upgrade = upgrade
        """The changes since the last run."""

    def run(
        self,
        spark: SparkSession,
        *,
        once: bool = False,
        stopping: threading.Event | None = None,
        show: Callable[[list[QueryNumbers]], None] | None = None,
        tell: Callable[[Message], None] | None = None,
        warn: Callable[[str], None] | None = None,
        alert: Callable[[Message], None] | None = None,
    ) -> Result:
        """Run the queries until they end (``once``) or ``stopping`` is set.

        ``show`` gets the numbers a few times per second; ``tell`` gets each message about progress,
        in a thread of Spark; ``warn`` gets probable mistakes, and ``alert`` the begins and ends of
        alerts (by default both as Python warnings). Raises
        :class:`pelton.pipeline.running.stages.StepError` and
        :class:`pelton.pipeline.running.supervising.QueryEndedError`; the queries are then stopped.
        """
        from pelton.pipeline.running.catalogs import Registrations
        from pelton.pipeline.running.engine import Engine

        stop = stopping or threading.Event()
        board = Board(tell)
        engine = Engine(self.pipeline, spark, self.queries, once=once, board=board)
        registrations = Registrations(self.pipeline, engine.notices.put)
        observers = Observers(self.pipeline, engine, show=show, warn=warn, alert=alert)
        failure: BaseException | None = None
        try:
            engine.start()
            observers.begin(spark.version, once=once)
            while engine.look() and not stop.wait(_LOOK_EVERY_SECONDS):
                registrations.look()
                observers.look()
        except BaseException as error:
            failure = error
            raise
        finally:
            engine.stop()
            engine.close()
            registrations.look(at_last=True)
            observers.end(failure)
        return Result(tuple(board.numbers()))


@contextlib.contextmanager
def taken(pipeline: Pipeline) -> Iterator[Job]:
    """Lock the state folder and plan the queries; needs no JVM.

    Raises :class:`PipelineError` for a plan that is not possible, :class:`StateError` for a folder
    that is in use or belongs to another pipeline.
    """
    if problems := check_functions(pipeline):
        raise PipelineError(pipeline.file, problems)
    check_lineage(pipeline)
    state = pipeline.state
    with locked(state) as children:
        memory = recall(state, pipeline.name)
        before = copy.deepcopy(memory)
        queries, problems = plan(pipeline, memory, lambda query: committed(state, query))
        if problems:
            raise PipelineError(pipeline.file, problems)
        upgrade = compare(pipeline, before, queries, [])
        remember(state, memory)
        yield Job(pipeline, children, queries, upgrade)


@contextlib.contextmanager
def locked(state: Path) -> Iterator[Children]:
    """The lock of a state folder. Raises :class:`StateError` if a process works in it."""
    try:
        children = Children(state)
    except FolderInUseError as error:
        raise StateError(f"{error}: stop it, or choose another folder with --state") from None
    except OSError as error:
        raise StateError(f"cannot use the state folder {state}: {error.strerror}") from None
    try:
        yield children
    finally:
        children.release()


def run(pipeline: Pipeline, spark: SparkSession | None = None, *, once: bool = False) -> Result:
    """Run a pipeline in this process until Ctrl-C, or with ``once`` until its input is processed.

    ``spark`` is any classic session, of this machine or a cluster; without one, a session is
    started and ended. Raises as :func:`taken` and :meth:`Job.run` do.
    """
    with taken(pipeline) as job:
        if spark is not None:
            from pelton.spark import register

            register(spark)
            return job.run(spark, once=once)
        with own_session(job) as made:
            return job.run(made, once=once)


@contextlib.contextmanager
def own_session(job: Job) -> Iterator[SparkSession]:
    """A session for a job, and its JVM, which ends with the session.

    The servers are asked first. Raises :class:`pelton.pipeline.running.stages.StepError` for streams and
    buckets that are missing, :class:`pelton.spark.java.JavaNotFoundError`, :class:`NoClusterError`.
    """
    from pelton.pipeline.running.stages import StepError
    from pelton.pipeline.running.targets import look_at_servers
    from pelton.spark.session import end_session, jvm_pid, session

    pipeline, children = job.pipeline, job.children
    if problems := look_at_servers(pipeline, job.queries):
        raise StepError("\n".join(problems))
    log = pipeline.state / "log"
    log.mkdir(exist_ok=True)
    settings = {name: each for name, each in pipeline.spark.items() if name != "master"}
    master = pipeline.spark.get("master", "local[2,4]")
    try:
        spark = session(
            f"pelton {pipeline.name}",
            master=master,
            settings=settings,
            log_file=log / "spark.log",
        )
    except Exception as error:  # from Spark, of many classes
        if _STOPPED not in str(error):
            raise
        raise NoClusterError(f"no master at {master} accepts this application") from error
    try:
        if (pid := jvm_pid(spark)) is not None:
            children.remember("jvm", pid)
        yield spark
    finally:
        end_session(spark)
        children.forget("jvm")
