"""Checks of the subjects of a stream: which subjects are allowed, and whether two lists of subjects
overlap.

Pure functions over lists of subjects. Two patterns collide when one subject matches both; a pattern
is a subset of another one when the other one matches all of its subjects.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pelton.api import errors_generated as errors
from pelton.api.errors import ApiError
from pelton.core.protocol.overlaps import TooManyStepsError, any_covered, first_collision
from pelton.core.protocol.subjects import collide, subset, valid
from pelton.engine.base.settings import MAX_STEPS, MAX_SUBJECT_TOKENS, MAX_SUBJECTS, MAX_TOKENS

_API = ("$JS.>", "$JSC.>", "$NRG.>")
_EVENTS = "$JS.EVENT.>"
_SYSTEM = "$SYS.>"
_SYSTEM_ACCOUNTS = "$SYS.ACCOUNT.>"


def is_valid(subject: str) -> bool:
    """Return whether the text is a subject; wildcards are allowed."""
    return bool(subject) and valid(subject)


def is_literal(subject: str) -> bool:
    """Return whether a valid subject has no wildcards."""
    tokens = f".{subject}."
    return ".*." not in tokens and ".>." not in tokens


def any_collision(first: Iterable[str], second: Sequence[str]) -> bool:
    """Return whether one subject matches a pattern of both lists."""
    return any(collide(one, other) for one in first for other in second)


def covered(subject: str, patterns: Iterable[str]) -> bool:
    """Return whether every subject that `subject` matches also matches one of the patterns."""
    return any(subset(subject, pattern) for pattern in patterns)


def check_size(subjects: Sequence[str], what: str) -> None:
    """Raise 10052 for too many or too long subjects; `what` names them in the error."""
    if len(subjects) > MAX_SUBJECTS:
        raise errors.StreamInvalidConfigError(
            f"too many {what}s, maximum allowed is {MAX_SUBJECTS}"
        )
    tokens = [1 + subject.count(".") for subject in subjects]
    if max(tokens, default=0) > MAX_SUBJECT_TOKENS:
        raise errors.StreamInvalidConfigError(
            f"{what} has too many tokens, maximum allowed is {MAX_SUBJECT_TOKENS}"
        )
    if sum(tokens) > MAX_TOKENS:
        raise errors.StreamInvalidConfigError(
            f"{what}s have too many tokens, maximum allowed is {MAX_TOKENS}"
        )


@contextmanager
def bounded() -> Iterator[None]:
    """A context for comparisons of subjects: raises 10052 when one takes too long."""
    try:
        yield
    except TooManyStepsError:
        what = "subjects with wildcards cross too often to be compared"
        raise errors.StreamInvalidConfigError(what) from None


def overlap(subjects: Sequence[str], upto: int | None = None) -> tuple[int, int] | None:
    """Return the places of the first two subjects that one message can match; the first is below
    `upto`. None: there are none. 10052: the comparison takes too long.
    """
    with bounded():
        return first_collision(subjects, len(subjects) if upto is None else upto, MAX_STEPS)


def nested(subjects: Sequence[str]) -> bool:
    """Return whether one subject of the list is a subset of another one. 10052 as above."""
    with bounded():
        return any_covered(subjects, MAX_STEPS)


def check_stream_subjects(subjects: Sequence[str], *, no_ack: bool) -> None:
    """Check the subjects of a stream. Raises 10052 for the first subject that is not allowed or
    overlaps with a later one.
    """
    good = 0
    wrong: ApiError | None = None
    try:
        for subject in subjects:
            if not is_valid(subject):
                raise errors.StreamInvalidConfigError("invalid subject")
            if not no_ack:
                _check_reserved(subject)
            good += 1
    except ApiError as error:
        wrong = error
    pair = overlap(subjects, good)
    if pair is not None:
        what = f'subject "{subjects[pair[0]]}" overlaps with "{subjects[pair[1]]}"'
        raise errors.StreamInvalidConfigError(what)
    if wrong is not None:
        raise wrong


def _check_reserved(subject: str) -> None:
    if subject[0] not in "$*>":
        return
    if subject == ">":
        raise errors.StreamInvalidConfigError("capturing all subjects requires no-ack to be true")
    if any(collide(subject, api) for api in _API) and not subset(subject, _EVENTS):
        what = "subjects that overlap with jetstream api require no-ack to be true"
        raise errors.StreamInvalidConfigError(what)
    if collide(subject, _SYSTEM) and not subset(subject, _SYSTEM_ACCOUNTS):
        what = "subjects that overlap with system api require no-ack to be true"
        raise errors.StreamInvalidConfigError(what)
