"""The Python functions of steps, from modules beside the pipeline file or on Python's path.

Modules from the folder of the file travel to the workers by value, so the workers need not have
them installed.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pelton.pipeline.description.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.pipeline.description.model import Call, Pipeline, Step


class FunctionMissing(Exception):
    """The function does not exist, or cannot be called like this; the text says why."""


def function_of(call: Call, folder: Path) -> Callable[..., Any]:
    """The function. Loads its module if necessary. Raises :class:`FunctionMissing`."""
    # Only if the module is there: other modules of the folder would hide those of other packages.
    beside = folder / call.module.partition(".")[0]
    if (beside.is_dir() or beside.with_suffix(".py").exists()) and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module(call.module)
    except ModuleNotFoundError as error:
        if error.name == call.module:
            raise FunctionMissing(f"there is no module {call.module} in {folder}") from None
        raise FunctionMissing(f"module {call.module} needs {error.name}: {error}") from None
    except Exception as error:  # a user's module may raise anything when it is loaded
        raise FunctionMissing(
            f"module {call.module} cannot be loaded: {type(error).__name__}: {error}"
        ) from None
    found = getattr(module, call.function, None)
    if not callable(found):
        near = [name for name, each in vars(module).items() if callable(each) and name[0] != "_"]
        known = f"; it has {', '.join(near)}" if near else ""
        raise FunctionMissing(f"module {call.module} has no function {call.function}{known}")
    made: Callable[..., Any] = found
    return made


def check_functions(pipeline: Pipeline) -> list[Problem]:
    """The faults in the functions of all steps."""
    problems = []
    for step in pipeline.steps.values():
        if step.python is not None:
            try:
                _check(step, step.python, pipeline.folder)
            except FunctionMissing as error:
                line = step.line_of("python")
                problems.append(Problem(line, f"steps.{step.name}: python: {error}"))
    return problems


def _check(step: Step, call: Call, folder: Path) -> None:
    function = function_of(call, folder)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # a built-in function does not tell its parameters
    try:
        signature.bind(*step.inputs, **call.arguments)
    except TypeError as error:
        raise FunctionMissing(
            f"{call} is called with {len(step.inputs)} DataFrame(s)"
            f" and with: {', '.join(call.arguments) or 'nothing'}, but takes {signature}: {error}"
        ) from None


def forget_modules(folder: Path) -> None:
    """Let the next step that names a module of the folder load it again, as it is then."""
    for name, _ in _modules_in(folder):
        del sys.modules[name]
    importlib.invalidate_caches()


def _modules_in(folder: Path) -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        where = getattr(module, "__file__", None)
        inside = folder.joinpath(*name.split("."))
        if where and Path(where) in (inside.with_suffix(".py"), inside / "__init__.py"):
            yield name, module


def carry_modules(folder: Path) -> None:
    """Make Spark send functions of modules in the folder by value. Needs pyspark."""
    from pyspark import cloudpickle

    for _, module in _modules_in(folder):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # of pyspark's
