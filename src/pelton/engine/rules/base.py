"""The interface of a rule. It depends on no feature and no stream."""

from collections.abc import Callable, Mapping

from pelton.api import ApiError
from pelton.core.stream.draft import Draft
from pelton.core.stream.refusals import Refusal

Verdict = Refusal | bool | None
Handler = Callable[[Draft], Verdict]


class Rule:
    """One feature of one stream. Subclasses override the methods that they need."""

    every = False
    """True: the rule is asked at STAGE_ARRIVED and STAGE_COUNT for each message, not only for those
    with its header.
    """

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handler of each stage (`pelton.core.stream.refusals`) at which the rule is
        asked.
        """
        return {}

    def expire(self, now_ns: int) -> bool:
        """Remove some messages of a recovered stream that have expired; return whether there are
        more. OSError.
        """
        return False

    def start(self) -> None:
        """Continue earlier work; called when all streams are recovered."""

    def tick(self, now_ns: int) -> int:
        """Do what is due; return the time of the next call (ns, 0: none). A rule may lower
        `StreamEntry.rules_at_ns` at any time to be called earlier.
        """
        return 0

    def close(self, *, for_good: bool) -> None:
        """Stop: the stream closes or gets other rules. `for_good`: it is deleted, and its folder is
        gone.
        """


def refusal(error: ApiError) -> Refusal:
    """Return an API error as the verdict of a stage."""
    return error.code, error.err_code, error.description
