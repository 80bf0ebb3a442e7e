"""Which subjects a client may publish to, and subscribe to."""

from __future__ import annotations

import re

from pelton.errors import InvalidSubjectError

from ..base.arguments import refuse

_PATTERN = re.compile(r"[^ \t\r\n\f\0.]+(?:\.[^ \t\r\n\f\0.]+)*")
BLANK = re.compile(r"[ \t\r\n\f\0]")


def check_literal(subject: str) -> None:
    """Raise InvalidSubjectError unless a message can be published to the subject."""
    if not isinstance(subject, str):
        refuse("subject", "text", subject)
    if _PATTERN.fullmatch(subject) is None or not {"*", ">"}.isdisjoint(subject.split(".")):
        raise InvalidSubjectError(
            f"cannot publish to {subject!r}: expected tokens without blanks or wildcards"
        )


def check_pattern(subject: str) -> None:
    """Raise InvalidSubjectError unless a client can subscribe to the subject; wildcards are allowed."""
    if _PATTERN.fullmatch(subject) is None or ">" in subject.split(".")[:-1]:
        raise InvalidSubjectError(
            f"cannot subscribe to {subject!r}: expected tokens without blanks, `>` only at the end"
        )
