"""The interface of a rule. It knows no feature and no stream."""

from collections.abc import Callable, Mapping

from penstock.api import ApiError
from penstock.core.stream.draft import Draft
from penstock.core.stream.refusals import Refusal

Verdict = Refusal | bool | None
Handler = Callable[[Draft], Verdict]


class Rule:
    """One feature of one stream. Subclasses override what they need."""

    every = False
    """Asked for each message (STAGE_ARRIVED, STAGE_COUNT), not only for those with its header."""

    def handlers(self) -> Mapping[int, Handler]:
        """What to ask at which stage of `penstock.core.stream.refusals`."""
        return {}

    def start(self) -> None:
        """All streams are recovered: take up what was under way."""

    def tick(self, now_ns: int) -> int:
        """Do what is due; when to call again (ns, 0 = not needed). `StreamEntry.rules_at_ns` may be
        lowered at any time to be called earlier.
        """
        return 0

    def close(self) -> None:
        """The stream ends or gets other rules."""


def refusal(error: ApiError) -> Refusal:
    """An error of the API as a stage's verdict."""
    return error.code, error.err_code, error.description
