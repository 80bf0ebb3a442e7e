"""The rules of one stream, and the order in which the data path asks them.

A feature is a module of this package with a factory `feature` that makes a `Rule`, or None. The module
is loaded for the first stream whose configuration uses it, so that a server without such streams starts
sooner.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from pelton.api.streams import StreamConfig
from pelton.core.protocol.publish_headers import value
from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import (
    STAGE_BATCH,
    STAGE_COUNTER,
    STAGE_ROLLUP,
    STAGE_SCHEDULE,
    STAGE_TTL,
    STAGE_TTL_VALUE,
    not_allowed,
)
from pelton.engine.rules.base import Handler, Rule, Verdict

if TYPE_CHECKING:
    from pelton.engine.account.account import JetStreamAccount
    from pelton.engine.account.catalog import StreamEntry

_HEADERS = {
    STAGE_BATCH: b"Nats-Batch-Id",
    STAGE_COUNTER: b"Nats-Incr",
    STAGE_TTL: b"Nats-TTL",
    STAGE_ROLLUP: b"Nats-Rollup",
    STAGE_TTL_VALUE: b"Nats-TTL",
}


class RuleSet:
    """The rules of one stream, as its data path asks them."""

    def __init__(self, rules: list[Rule]) -> None:
        """`rules` are asked in this order at a stage that several of them handle."""
        self.rules = rules
        self._handlers: dict[int, list[Handler]] = {}
        for rule in rules:
            for stage, handler in rule.handlers().items():
                self._handlers.setdefault(stage, []).append(handler)

    def ask(self, stage: int, draft: Draft) -> Verdict:
        """Return the first verdict that is not None. Without a rule for the stage: the answer of a
        stream without the feature.
        """
        handlers = self._handlers.get(stage)
        if handlers is None:
            if draft.sourced:  # the origin has allowed the header
                return None
            if stage == STAGE_SCHEDULE:
                subject = draft.subject.encode("utf-8", "surrogateescape")
                return not_allowed(stage, draft.headers, subject)
            name = _HEADERS.get(stage)
            return not_allowed(stage, value(draft.headers, name) or b"") if name else None
        for handler in handlers:
            verdict = handler(draft)
            if verdict is not None:
                return verdict
        return None

    def tick(self, now_ns: int) -> int:
        """Let every rule do what is due; return the time of the next call (ns, 0: none)."""
        due = [due_ns for rule in self.rules if (due_ns := rule.tick(now_ns))]
        return min(due, default=0)


Feature = Callable[["JetStreamAccount", "StreamEntry"], Rule | None]

FEATURES: tuple[tuple[str, Callable[[StreamConfig], object]], ...] = (
    ("subject_transform", lambda config: config.subject_transform),
    ("counters", lambda config: config.allow_msg_counter),
    ("fast_batches", lambda config: config.allow_batched),
    ("atomic", lambda config: config.allow_atomic),
    ("message_ttl", lambda config: config.allow_msg_ttl),
    ("schedules", lambda config: config.allow_msg_schedules),
    ("rollup", lambda config: config.allow_rollup_hdrs),
    ("republish", lambda config: config.republish),
)
"""The features in the order of their checks. A feature with state that outlasts a change of the
configuration takes it from the former rules in `StreamEntry.rules`.
"""


def apply(account: "JetStreamAccount", entry: "StreamEntry") -> None:
    """Give a stream the rules of its configuration. Called after a create, a recovery and an
    update.
    """
    rules = []
    for module, asked in FEATURES:
        if asked(entry.config):
            feature: Feature = import_module(f"pelton.engine.rules.{module}").feature
            if (rule := feature(account, entry)) is not None:
                rules.append(rule)
    if entry.rules is not None:
        for former in entry.rules.rules:
            if former not in rules:
                former.close(for_good=False)
    entry.rules = RuleSet(rules) if rules else None
    entry.core.path.use_rules(entry.rules, any(rule.every for rule in rules))
    entry.rules_at_ns = 0


def expire(entry: "StreamEntry", now_ns: int) -> bool:
    """Remove some expired messages of a stream that is being recovered; return whether there are
    more. OSError.
    """
    found = [rule.expire(now_ns) for rule in (entry.rules.rules if entry.rules is not None else ())]
    return any(found)


def start(entry: "StreamEntry") -> None:
    """Start the rules of a new stream, or of a recovered one when all streams are recovered."""
    for rule in entry.rules.rules if entry.rules is not None else ():
        rule.start()


def close(entry: "StreamEntry", *, for_good: bool) -> None:
    """Close the rules at the end of the stream or the server. `for_good`: the stream is deleted."""
    for rule in entry.rules.rules if entry.rules is not None else ():
        rule.close(for_good=for_good)
