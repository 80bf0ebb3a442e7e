"""Takes the rows that throw out of the steps with ``onError: reject``, before any sink has the batch.

Each such step is computed first, whole. If it throws, the messages are found, and their list is kept in the
state folder before any sink is written; so a batch that runs again after a kill rejects the same rows,
although some sinks have it already::

    <state>/thrown/<query>/41.json      {"typed": [["ORDERS", 412, "[CAST_INVALID_INPUT] ..."]]}
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pelton.pipeline.description.graph import ordered, upstream
from pelton.pipeline.running.durable import write_durably
from pelton.pipeline.running.rejected import Thrown
from pelton.pipeline.running.stages import StepError, said
from pelton.pipeline.running.supervising import WORKER_GONE
from pelton.pipeline.running.throwing import TooManyThrow, evaluate, thrown

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pelton.pipeline.description.model import Pipeline, Step
    from pelton.pipeline.running.frames import Frames

_KEPT_BATCHES = 100


def catching(pipeline: Pipeline, sinks: Iterable[str]) -> list[Step]:
    """The steps of these sinks whose errors are caught, each after its inputs."""
    nodes = {each for name in sinks for each in upstream(pipeline, name)}
    steps = (pipeline.steps.get(name) for name in ordered(pipeline) if name in nodes)
    return [step for step in steps if step is not None and step.catches]


class Catch:
    """The rows of one batch that throw."""

    def __init__(self, pipeline: Pipeline, query: str, batch: int) -> None:
        """Reads the list that an earlier attempt at this batch left."""
        self._pipeline = pipeline
        self._batch = batch
        self._folder = pipeline.state / "thrown" / query
        self._found: dict[str, list[Thrown]] = _read(self._folder / f"{batch}.json")

    def take(self, frames: Frames, steps: Iterable[Step]) -> None:
        """Compute the steps and reject the rows that throw. Raises :class:`StepError`."""
        before = {name: list(found) for name, found in self._found.items()}
        for step in steps:
            if known := self._found.get(step.name):
                frames.reject(step.name, known)
            error = evaluate(frames.whole(step.name))
            if error is not None:
                self._search(frames, step, error)
        if self._found != before:
            self._write()

    def _search(self, frames: Frames, step: Step, error: Exception) -> None:
        place = frames.streamed(step)
        known = self._found.get(step.name, [])
        rows = frames.input_of(step).persist()
        try:
            found = thrown(rows, lambda some: frames.whole(step.name, {place: some}))
        except TooManyThrow as many:
            first = many.first
            what = (
                f"{many.count}, so the step is at fault, not they: message {first.seq}"
                f"{f' of {first.stream}' if first.stream else ''}: {first.error}"
            )
            raise self._refused(step, what) from None
        except Exception as other:  # it throws without any rows, or a worker is gone
            if any(text in str(other) for text in WORKER_GONE):
                raise
            raise self._refused(step, said(other)) from other
        finally:
            rows.unpersist()
        if not found:
            raise self._refused(step, said(error)) from error
        self._found[step.name] = [*known, *found]
        frames.reject(step.name, self._found[step.name])
        if (again := evaluate(frames.whole(step.name))) is not None:
            raise self._refused(step, said(again)) from again

    def _refused(self, step: Step, what: str) -> StepError:
        line = step.line_of("onError")
        text = f"{self._pipeline.file}:{line}: steps.{step.name}: {what}"
        return StepError(self._pipeline.hide(" ".join(text.split())))

    def _write(self) -> None:
        """Keep the list durably; lists of batches that cannot come again are removed."""
        text = json.dumps(self._found, ensure_ascii=False)
        write_durably(self._folder / f"{self._batch}.json", text)
        for old in self._folder.glob("*.json"):
            if old.stem.isdigit() and int(old.stem) <= self._batch - _KEPT_BATCHES:
                old.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, list[Thrown]]:
    try:
        data = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StepError(f"{path} cannot be read: {error}") from None
    return {name: [Thrown(*each) for each in found] for name, found in data.items()}
