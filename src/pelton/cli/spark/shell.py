"""``pelton pipeline shell``: a prompt over one warm session, so that each look at a file takes a moment."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.session import command
from pelton.cli.spark.pipeline import FILE, Wrong, load_file, planned, print_preview
from pelton.cli.spark.pipeline_tests import chosen, run_and_print
from pelton.errors import not_installed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from pelton.pipeline.description.model import Pipeline

T = TypeVar("T")
_CANCEL_EVERY_SECONDS = 0.2
_HELP = """\
check                            find faults, also unknown columns and functions
show [STEP] [--rows 20] [--from POSITION] [--messages 1000]
                                 rows of a source, step, step.rejected or sink; else of every sink
sql QUERY                        a query over sources and steps by their names
test [NAME]                      run the tests of the file, or one of them
run                              process what is there, as pelton pipeline run --once
help, quit                       (or Ctrl-D)
The file is read again by each command. Ctrl-C cancels a command."""
_MESSAGES = 1000
_ROWS = 20


@click.command()
@FILE
@command
def shell(file: str) -> int:
    """Start Spark once, and work on FILE at a prompt: check, show, sql, test, run.

    Each command reads the file again, so a change is seen at once. Ctrl-C cancels a command. Commands
    may also come from standard input, one a line; then the exit status is 1 if one of them fails.
    """
    pipeline = load_file(file, None)
    from pelton.spark.java import JavaNotFoundError, ensure_java

    try:
        from pelton.pipeline.running.preview import session_of
        from pelton.pipeline.running.stages import StepError

        ensure_java()
        with session_of(pipeline) as spark, _Workbench(file, pipeline, spark) as bench:
            return bench.work()
    except ModuleNotFoundError as problem:
        raise click.ClickException(str(not_installed(problem, "spark"))) from None
    except (StepError, JavaNotFoundError) as error:
        raise Wrong(str(error)) from None


class _Workbench:
    """Commands on one file and one session; Spark's calls are made in a thread, so that Ctrl-C reaches us."""

    def __init__(self, file: str, pipeline: Pipeline, spark: SparkSession) -> None:
        self._file = file
        self._began = pipeline
        self._spark = spark
        from pelton.spark.session import use_in_thread

        self._thread = ThreadPoolExecutor(1, "shell", use_in_thread, (spark,))
        self._stopping = threading.Event()

    def __enter__(self) -> _Workbench:
        # A new session cancels jobs on Ctrl-C from wherever this thread is; here only a command does.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.dont_write_bytecode = True  # two changes within a second look the same to it
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()

    def work(self) -> int:
        """Do the commands until the end; 1 if one failed that did not come from a terminal."""
        failed = False
        terminal = sys.stdin.isatty()
        for line in self._prompted() if terminal else sys.stdin:
            words = line.split(None, 1)
            if not words or words[0].startswith("#"):
                continue
            if words[0] in ("quit", "exit"):
                break
            failed |= not self._done(line.strip(), words[0])
        return int(failed and not terminal)

    def _prompted(self) -> Iterator[str]:
        read: Callable[[str], str] = input
        with contextlib.suppress(ImportError):
            from prompt_toolkit import PromptSession
            from prompt_toolkit.completion import WordCompleter

            names = [*_COMMANDS, *self._began.sources, *self._began.steps, *self._began.sinks]
            read = PromptSession(completer=WordCompleter([*names, "help", "quit"])).prompt
        print(f"{self._began.name}: Spark is ready; help lists the commands")
        while True:
            try:
                yield read("pipeline> ")
            except KeyboardInterrupt:
                continue
            except EOFError:
                return

    def _done(self, line: str, name: str) -> bool:
        """Do one command; a fault is a line."""
        began = time.monotonic()
        self._stopping.clear()
        try:
            if name == "help":
                print(_HELP)
                return True
            if name not in _COMMANDS:
                raise click.ClickException(f"there is no command {name}; help lists them")
            good = _COMMANDS[name](self, line[len(name) :].strip())
        except KeyboardInterrupt:
            print("cancelled", file=sys.stderr)
            return False
        except Wrong as wrong:
            for each in wrong.problems:
                print(f"pelton: {each}", file=sys.stderr)
            return False
        except click.ClickException as mistake:
            print(f"pelton: {mistake.format_message()}", file=sys.stderr)
            return False
        print(f"{time.monotonic() - began:.2f} s", file=sys.stderr)
        return good

    def _call(self, work: Callable[[], T]) -> T:
        """Do Spark's work; Ctrl-C cancels its jobs. Raises ClickException for what goes wrong."""
        from pelton.pipeline.description.problems import PipelineError
        from pelton.pipeline.running.queries import StateError
        from pelton.pipeline.running.stages import StepError
        from pelton.pipeline.running.supervising import QueryEndedError, brief

        future = self._thread.submit(work)
        while not future.done():
            try:
                with contextlib.suppress(TimeoutError):
                    wait = _CANCEL_EVERY_SECONDS if self._stopping.is_set() else None
                    future.exception(wait)
            except KeyboardInterrupt:
                self._stopping.set()
            if self._stopping.is_set() and not future.done():
                with contextlib.suppress(Exception):  # the JVM may be gone, which the work reports
                    self._spark.sparkContext.cancelAllJobs()
        if self._stopping.is_set():
            raise KeyboardInterrupt
        try:
            return future.result()
        except (PipelineError, StateError, StepError, QueryEndedError) as error:
            raise Wrong(str(error)) from None
        except click.ClickException:
            raise
        except Exception as error:  # of Spark and of users' functions
            raise Wrong(self._began.hide(brief(error))) from None

    def _loaded(self) -> Pipeline:
        """The file as it is now."""
        from pelton.pipeline.description.functions import forget_modules

        pipeline = load_file(self._file, None, self._began.target or None)
        forget_modules(pipeline.folder)
        if pipeline.spark != self._began.spark:
            print(
                "pelton: warning: the section spark has changed: start the shell again",
                file=sys.stderr,
            )
        return pipeline

    def check(self, words: str) -> bool:
        _arguments(words, most=0)
        pipeline = self._loaded()
        from pelton.pipeline.running.analysis import analyse

        queries, problems = planned(pipeline)
        found = self._call(lambda: analyse(pipeline, self._spark, queries))
        if problems := [*problems, *(line for line in found.problems if line not in problems)]:
            raise Wrong("\n".join(problems))
        for line in [*found.warnings, *found.notes]:
            print(f"pelton: warning: {line}", file=sys.stderr)
        print(f"{pipeline.name}: {self._file} is valid")
        return True

    def show(self, words: str) -> bool:
        names, options = _arguments(words, most=1, options=("rows", "from", "messages"))
        rows, messages = (
            _number(options, name, default)
            for name, default in (("rows", _ROWS), ("messages", _MESSAGES))
        )
        pipeline = self._loaded()
        from pelton.pipeline.running.preview import named, previews, readable

        def made() -> tuple[tuple[str, ...], list[Any]]:
            wanted = named(pipeline, names[0] if names else None)
            read = readable(pipeline, wanted, begin=options.get("from"), messages=messages)
            return wanted, list(previews(read, self._spark, wanted, rows))

        wanted, found = self._call(made)
        for place, each in enumerate(found):
            print_preview(each, wanted, first=place == 0)
        return True

    def sql(self, query: str) -> bool:
        pipeline = self._loaded()
        if not query:
            raise click.ClickException("sql needs a query, such as: sql select * from raw limit 5")
        from pelton.pipeline.running.preview import Preview, readable
        from pelton.pipeline.testing.querying import asked, nodes_in

        names = nodes_in(pipeline, query)

        def made() -> Any:
            read = readable(pipeline, names, begin=None, messages=_MESSAGES)
            return asked(read, self._spark, names, query, _ROWS)

        print_preview(Preview("sql", self._call(made)), ("sql",), first=True)
        return True

    def test(self, words: str) -> bool:
        pipeline = self._loaded()
        names, _ = _arguments(words, most=99)
        cases = chosen(pipeline, " ".join(names) or None)
        outcomes = self._call(lambda: run_and_print(pipeline, self._spark, cases))
        return all(each.passed for each in outcomes)

    def run(self, words: str) -> bool:
        _arguments(words.replace("--once", ""), most=0)
        pipeline = self._loaded()
        from rich.console import Console

        from pelton.pipeline.running.job import taken
        from pelton.pipeline.running.numbers import summary_table

        def made() -> Any:
            with taken(pipeline) as job:
                return job.run(self._spark, once=True, stopping=self._stopping, warn=_warn)

        Console().print(summary_table(list(self._call(made).queries)))
        return True


def _warn(text: str) -> None:
    print(f"pelton: warning: {text}", file=sys.stderr)


_COMMANDS: dict[str, Callable[[_Workbench, str], bool]] = {
    "check": _Workbench.check,
    "show": _Workbench.show,
    "sql": _Workbench.sql,
    "test": _Workbench.test,
    "run": _Workbench.run,
}


def _arguments(
    words: str, *, most: int, options: tuple[str, ...] = ()
) -> tuple[list[str], dict[str, str]]:
    """The names and the options of a line. Raises ClickException for others."""
    try:
        left = shlex.split(words)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    names: list[str] = []
    found: dict[str, str] = {}
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            names.append(word)
            continue
        name, _, value = word[2:].partition("=")
        if name not in options:
            known = ", ".join(f"--{each}" for each in options) or "none"
            raise click.ClickException(f"there is no option {word}; there are: {known}")
        if not value and not left:
            raise click.ClickException(f"{word} needs a value")
        found[name] = value or left.pop(0)
    if len(names) > most:
        raise click.ClickException(f"unexpected: {' '.join(names[most:])}")
    return names, found


def _number(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise click.ClickException(f"--{name} is {text!r}, but must be a number from 1 on")
    return int(text)
