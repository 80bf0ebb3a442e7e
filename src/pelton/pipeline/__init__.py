"""Pipelines: sources, steps and sinks in one YAML file, on Spark; and the main job.

================  ==================================================================================
``description``   the file, read and checked without Spark
``running``       a running pipeline: queries, batches into sinks, numbers, status
``testing``       tests of a file, without servers
``backfilling``   older messages into sinks, tables made anew
``logs``          the main job, ``pelton run``: log files into a stream, the stream into tables
``children``      child processes that end with this one, and the lock of a folder
``display``       numbers, updated in place on a terminal, as lines elsewhere
================  ==================================================================================

:func:`load` and :func:`run` are the interface for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pelton.pipeline.description.problems import PipelineError
    from pelton.pipeline.description.reading import load
    from pelton.pipeline.running.job import run

__all__ = ["PipelineError", "load", "run"]
_WHERE = {
    "load": "description.reading",
    "run": "running.job",
    "PipelineError": "description.problems",
}


if not TYPE_CHECKING:  # or checkers would take any name for one of this package

    def __getattr__(name: str) -> Any:
        """The names for users, imported on first use."""
        if name in _WHERE:
            from importlib import import_module

            return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
        raise AttributeError(name)
