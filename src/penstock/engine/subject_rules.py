"""Which subjects a stream may listen to, and whether two sets of subjects meet.

Rules over lists of subjects only; knows no stream. `collide`: some subject matches both patterns;
`subset`: all of one.
"""

from collections.abc import Iterable, Sequence

from penstock.api import errors_generated as errors
from penstock.core.subjects import collide, subset, valid

_API = ("$JS.>", "$JSC.>", "$NRG.>")
_EVENTS = "$JS.EVENT.>"
_SYSTEM = "$SYS.>"
_SYSTEM_ACCOUNTS = "$SYS.ACCOUNT.>"


def is_valid(subject: str) -> bool:
    """Whether it is a subject, wildcards allowed."""
    return bool(subject) and valid(subject)


def is_literal(subject: str) -> bool:
    """Whether no token is a wildcard; the subject is valid."""
    return not any(token in ("*", ">") for token in subject.split("."))


def any_collision(first: Iterable[str], second: Sequence[str]) -> bool:
    """Whether a message could match a subject of both lists."""
    return any(collide(one, other) for one in first for other in second)


def covered(subject: str, patterns: Iterable[str]) -> bool:
    """Whether every message of the subject matches one of the patterns."""
    return any(subset(subject, pattern) for pattern in patterns)


def check_stream_subjects(subjects: Sequence[str], *, no_ack: bool) -> None:
    """Raise what a stream's subjects are refused for (10052)."""
    for index, subject in enumerate(subjects):
        if not is_valid(subject):
            raise errors.StreamInvalidConfigError("invalid subject")
        if not no_ack:
            _check_reserved(subject)
        for later in subjects[index + 1 :]:
            if collide(subject, later):
                what = f'subject "{subject}" overlaps with "{later}"'
                raise errors.StreamInvalidConfigError(what)


def _check_reserved(subject: str) -> None:
    if subject == ">":
        raise errors.StreamInvalidConfigError("capturing all subjects requires no-ack to be true")
    if any(collide(subject, api) for api in _API) and not subset(subject, _EVENTS):
        what = "subjects that overlap with jetstream api require no-ack to be true"
        raise errors.StreamInvalidConfigError(what)
    if collide(subject, _SYSTEM) and not subset(subject, _SYSTEM_ACCOUNTS):
        what = "subjects that overlap with system api require no-ack to be true"
        raise errors.StreamInvalidConfigError(what)
