"""subject_transform: stores a message under another subject than the published one.

The transform comes first: expectations, limits and republish use the new subject. A subject that does
not match the source is not changed.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import STAGE_ARRIVED
from pelton.engine.base import transforms
from pelton.engine.rules.base import Handler, Rule, Verdict

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams with a transform."""
    wanted = entry.config.subject_transform
    if wanted is None or not wanted.dest:
        return None
    return SubjectTransform(transforms.parse(wanted.src, wanted.dest, account.random_below))


def subject_of(entry: "StreamEntry", subject: str) -> str:
    """Return the subject under which a stream stores a message that it made itself."""
    for rule in entry.rules.rules if entry.rules is not None else ():
        if isinstance(rule, SubjectTransform):
            return rule.apply(subject) or subject
    return subject


class SubjectTransform(Rule):
    """The transform of one stream."""

    every = True

    def __init__(self, transform: transforms.Transform) -> None:
        """`transform` is the stream's own."""
        self.apply: Callable[[str], str | None] = transform.apply

    def handlers(self) -> Mapping[int, Handler]:
        """Transform the subject before all checks."""
        return {STAGE_ARRIVED: self._arrived}

    def _arrived(self, draft: Draft) -> Verdict:
        subject = self.apply(draft.subject)
        if subject is not None and subject != draft.subject:
            draft.change(subject=subject)
        return None
