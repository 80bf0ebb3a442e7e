"""How a failing command ends: one line on stderr, or one JSON object with ``--json``; exit status.

0 done; 1 not done; 2 the command line is wrong; 130 interrupted. In ``pelton store`` 1 and 2 have
other meanings (``cli/store/session``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

_BUCKETS = {"$KV": "bucket", "$O": "object store"}
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130


class ReaderGone(Exception):  # it is no error
    """The reader of the output has closed it."""


@dataclass(frozen=True)
class Failure:
    """The reason and the exit status. ``code`` and ``err_code`` are those of JetStream."""

    message: str
    status: int = FAILED
    code: int = 0
    err_code: int = 0
    problems: tuple[str, ...] = ()
    """The single findings, if a command has several; each is printed on a separate line."""


def without_number(text: str) -> str:
    """A text without the numbers of the system's errors."""
    return _ERRNO.sub("", text)


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for JSON, even if the rest of it cannot be parsed."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if "--json" in options or "-j" in options:
        return True
    forms = ("json", "jsonl")
    after = [options[at + 1] for at, each in enumerate(options[:-1]) if each == "--format"]
    return any(form in forms for form in after) or any(f"--format={f}" in options for f in forms)


def tell(failure: Failure, *, as_json: bool, tool: str = "pelton") -> int:
    """Write the failure to stderr; its exit status. The tool `nats` writes it as in 2020."""
    if as_json:
        print(json.dumps({"error": _as_data(failure)}, ensure_ascii=False), file=sys.stderr)
        return failure.status
    for text in failure.problems or (failure.message,):
        line = " ".join(text.split())
        print("nats: error:" if tool == "nats" else "pelton:", shown(line), file=sys.stderr)
    return failure.status


def _as_data(failure: Failure) -> dict[str, object]:
    data: dict[str, object] = {"message": failure.message, "status": failure.status}
    if failure.code:
        data["code"] = failure.code
    if failure.err_code:
        data["err_code"] = failure.err_code
    if failure.problems:
        data["problems"] = list(failure.problems)
    return data


def failure_of(problem: Exception, tool: str = "pelton") -> Failure:
    """The failure for an error of the client or of the system."""
    from pelton.errors import (
        ApiError,
        InvalidBucketNameError,
        InvalidKeyError,
        InvalidSubjectError,
        NoRespondersError,
        PeltonError,
        PeltonTimeoutError,
    )

    if tool == "nats" and isinstance(problem, NoRespondersError | PeltonTimeoutError):
        return Failure("nats: timeout, try --help")  # in 2020 there was no answer at all
    text = without_number(str(problem)) or type(problem).__name__
    if isinstance(problem, OSError) and problem.strerror and problem.filename is not None:
        text = f"{os.fsdecode(problem.filename)}: {problem.strerror}"
    if isinstance(problem, NoRespondersError):
        return Failure(_nobody(problem.subject, problem.why))
    if isinstance(problem, ApiError):
        text = problem.description if tool == "nats" else text
        return Failure(text, code=problem.code, err_code=problem.err_code)
    if isinstance(problem, InvalidKeyError):
        text = text.partition("; bucket.")[0]  # what follows is for programs
    if isinstance(problem, InvalidSubjectError | InvalidKeyError | InvalidBucketNameError):
        return Failure(text, USAGE)  # nothing was sent: the command line has no possible name
    refused = isinstance(problem, ValueError) and not isinstance(problem, PeltonError)
    return Failure(text, USAGE if refused and not isinstance(problem, UnicodeError) else FAILED)


def _nobody(subject: str, why: str) -> str:
    """The text for a request that had no responders; ``why`` says who should have answered."""
    if ".CONSUMER.MSG.NEXT." in subject:
        stream, _, consumer = subject.partition(".CONSUMER.MSG.NEXT.")[2].partition(".")
        return f"stream {stream} has no pull consumer {consumer}"
    if subject.startswith("$JS.API."):
        return "the server does not offer JetStream (start it with -js)"
    if subject.startswith("$JS.") and ".API." in subject:
        domain = subject[len("$JS.") :].partition(".API.")[0]
        return f'the server does not know the JetStream domain "{domain}"'
    kind, _, rest = subject.partition(".")
    if kind in _BUCKETS and rest:
        name = rest.partition(".")[0]
        return f"{_BUCKETS[kind]} {name} does not answer: it is not there, or it has no leader now"
    return f"nobody answers on {subject}{': ' if why else ''}{why}"
