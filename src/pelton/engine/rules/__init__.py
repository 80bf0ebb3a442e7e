"""The rules of a stream's rarer features: rollups, TTLs, counters, schedules, batches, transforms.

A rule is one feature of one stream, in plain Python. The stream's data path asks it at the stages
of `pelton.core.stream.refusals` and only for messages that need it, so a stream without the
feature, or a message that does not use it, costs nothing. `FEATURES` lists the rules. A rule knows
its stream and its account, and no other rule.
"""

from pelton.engine.rules.base import Rule
from pelton.engine.rules.ruleset import RuleSet, apply, close, expire, start

__all__ = ["Rule", "RuleSet", "apply", "close", "expire", "start"]
