"""Nats-Rollup: the new message replaces all others on its subject (`sub`), or all others in the
stream (`all`).

The message is stored like any other, then the older messages are removed. A message that gets a
sequence and is not stored for lack of interest removes them too. `pelton.core.stream.refusals`
has the answer of streams that do not allow rollups.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pelton.core.base.quoting import quoted
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import STAGE_ROLLUP, STAGE_STORED
from pelton.core.stream.rollup import roll_up
from pelton.engine.base.subject_checks import is_literal
from pelton.engine.rules.base import Handler, Rule, Verdict

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

HEADER = b"Nats-Rollup"
SUBJECT = b"sub"
ALL = b"all"


def feature(account: "JetStreamAccount", entry: "StreamEntry") -> Rule | None:
    """Return the rule for streams that allow rollups."""
    return Rollup(entry) if allowed(entry) else None


def allowed(entry: "StreamEntry") -> bool:
    """Return whether a stream allows rollups."""
    return entry.config.allow_rollup_hdrs and not entry.config.deny_purge


class Rollup(Rule):
    """Rollups of one stream."""

    def __init__(self, entry: "StreamEntry") -> None:
        """The rule keeps no state."""
        self._core = entry.core

    def handlers(self) -> Mapping[int, Handler]:
        """Check the value with the other headers; remove the older messages after the store."""
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
                # wildcards that a publisher wrote select messages as in a purge
                self._core.purge(subject=draft.subject, below=draft.seq)
            elif wanted == SUBJECT:
                roll_up(self._core, draft.seq, draft.subject)
            elif wanted == ALL:
                roll_up(self._core, draft.seq)
        return None
