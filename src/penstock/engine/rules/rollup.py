"""Nats-Rollup: the new message takes the place of the others on its subject (`sub`), or of all the
others in the stream (`all`).

Two steps: the message is stored like any other, then what is older goes. A message that was given a
sequence but not stored, for want of interest, rolls up just the same. What is asked when a stream
does not allow it is in `penstock.core.stream.refusals`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.core.base.quoting import quoted
from penstock.core.protocol.publish_headers import value
from penstock.core.stream.draft import Draft
from penstock.core.stream.refusals import STAGE_ROLLUP, STAGE_STORED
from penstock.core.stream.rollup import roll_up
from penstock.engine.rules.base import Handler, Rule, Verdict
from penstock.engine.subject_checks import is_literal

if TYPE_CHECKING:
    from penstock.engine.account import JetStreamAccount
    from penstock.engine.catalog import StreamEntry

HEADER = b"Nats-Rollup"
SUBJECT = b"sub"
ALL = b"all"


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """For streams that allow it."""
    return Rollup(entry) if allowed(entry) else None


def allowed(entry: "StreamEntry") -> bool:
    """Whether a stream rolls up."""
    return entry.config.allow_rollup_hdrs and not entry.config.deny_purge


class Rollup(Rule):
    """Rollups of one stream."""

    def __init__(self, entry: "StreamEntry") -> None:
        """Keeps nothing of its own."""
        self._core = entry.core

    def handlers(self) -> Mapping[int, Handler]:
        """The value is checked with the headers; what is older goes once it is stored."""
        return {STAGE_ROLLUP: self._check, STAGE_STORED: self._stored}

    def _check(self, draft: Draft) -> Verdict:
        wanted = (value(draft.headers, HEADER) or b"").lower()
        if wanted in (SUBJECT, ALL):
            return None
        return 500, 10111, f"rollup value invalid: {quoted(wanted)}"

    def _stored(self, draft: Draft) -> Verdict:
        wanted = value(draft.headers, HEADER)
        if wanted is not None:
            wanted = wanted.lower()
            if wanted == SUBJECT and not is_literal(draft.subject):
                # a publisher may have written wildcards: they mean what they mean to a purge
                self._core.purge(subject=draft.subject, below=draft.seq)
            elif wanted == SUBJECT:
                roll_up(self._core, draft.seq, draft.subject)
            elif wanted == ALL:
                roll_up(self._core, draft.seq)
        return None
