"""Subject mappings of an account: the subject that replaces the subject of a client's message.

The first mapping whose pattern matches applies; one of its targets is drawn by weight. The rest of the
weights up to 100 keeps the subject; when the subject itself is a target, the rest drops the message.
A published subject may contain wildcards: a mapping matches a subject that its pattern covers. The
caller gives the randomness.
"""

from collections.abc import Callable
from typing import NamedTuple

from pelton.core.protocol.overlaps import Patterns
from pelton.engine.base.transforms import Transform, TransformError, check, parse
from pelton.server.settings.accounts import Mapping

Random = Callable[[int], int]  # a random number below the argument

_CACHED = 4096


class _Target(NamedTuple):
    transform: Transform
    below: int  # upper bound of the draws for this target, of 100


class _Rule(NamedTuple):
    pattern: str
    targets: tuple[_Target, ...]


def problem_of(mapping: Mapping) -> str:
    """The error in a mapping; "" when it is valid."""
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for target in mapping.targets:
        if target.subject in seen:
            return f'duplicate entry for "{target.subject}"'
        seen.add(target.subject)
        if target.weight > 100:
            return "individual weights need to be <= 100"
        totals[target.cluster] = totals.get(target.cluster, 0) + target.weight
        if totals[target.cluster] > 100:
            return "total weight needs to be <= 100"
        try:
            if not target.subject:
                raise TransformError("invalid mapping destination: invalid transform")
            check(mapping.subject, target.subject)
        except TransformError as error:
            return str(error)
    return ""


class Mappings:
    """The mappings of one account. Call it with a subject: the new subject, or None to drop the
    message.
    """

    def __init__(self, mappings: list[Mapping], random: Random) -> None:
        """Targets for a cluster are left out, because a single server is in no cluster. A mapping
        that is not valid (see `problem_of`) is ignored; it is noticed when a subject matches it.
        """
        self._random = random
        self._mappings = mappings
        self._rules: dict[int, _Rule] = {}  # by number, made when a subject matches
        self._patterns = Patterns()
        for number, mapping in enumerate(mappings):
            self._patterns.add(mapping.subject, number)
        self._found: dict[str, _Rule | None] = {}

    def __call__(self, subject: str) -> str | None:
        """The new subject of a message that was published to `subject`."""
        try:
            rule = self._found[subject]
        except KeyError:
            rule = self._find(subject)
        if rule is None:
            return subject
        first = rule.targets[0]
        if first.below == 100:
            return first.transform.carry(subject)
        drawn = self._random(100)
        for target in rule.targets:
            if drawn < target.below:
                return target.transform.carry(subject)
        return None

    @property
    def steps(self) -> int:
        """Tokens looked at so far, for tests that they are few."""
        return self._patterns.steps

    def _find(self, subject: str) -> _Rule | None:
        found = None
        while found is None and (number := self._patterns.first_covering(subject)) >= 0:
            found = self._rules.get(number)
            if found is None:
                mapping = self._mappings[number]
                try:
                    found = self._rules[number] = _rule(mapping, self._random)
                except (TransformError, IndexError):
                    self._patterns.drop(mapping.subject, number)
        if len(self._found) >= _CACHED:
            self._found.clear()
        self._found[subject] = found
        return found


def _rule(mapping: Mapping, random: Random) -> _Rule:
    targets = [target for target in mapping.targets if not target.cluster]
    own = any(target.subject == mapping.subject for target in mapping.targets)
    weighted = [
        (target.weight, parse(mapping.subject, target.subject, random)) for target in targets
    ]
    total = sum(target.weight for target in targets)
    if total != 100 and not own:
        weighted.append((100 - total, parse(mapping.subject, same(mapping.subject), random)))
    weighted.sort(key=lambda each: each[0])
    below = 0
    made = []
    for weight, transform in weighted:
        below += weight
        made.append(_Target(transform, below))
    return _Rule(mapping.subject, tuple(made))


def same(pattern: str) -> str:
    """The destination that leaves the subjects of a pattern unchanged."""
    tokens, number = [], 0
    for token in pattern.split("."):
        if token == "*":
            number += 1
            token = f"${number}"
        tokens.append(token)
    return ".".join(tokens)


__all__ = ["Mappings", "Random", "problem_of", "same"]
