"""Stream configurations drawn from every field's values get the same verdict of our server and of a
nats-server: the same error, or the same configuration with all defaults in.

Each is created, looked at, updated, and looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.compat.configs import STREAM, drawn
from tests.compat.pair import Judges, both
from tests.compat.seeds import examples, seed_of
from tests.compat.waivers import STREAM_WAIVERS, waived
from tests.ways import FULL, length

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.peer

Config = dict[str, Any]
CALLS = settings(
    max_examples=examples(60),
    database=None,
    suppress_health_check=list(HealthCheck),
    report_multiple_bugs=False,
)


@pytest.fixture(scope="module")
def judges() -> Iterator[Judges]:
    with both() as pair:
        judges = Judges(pair)
        for name, subjects in (("TAKEN", ["taken.>"]), ("ORIGIN", ["origin.>"])):
            judges.ask(f"STREAM.CREATE.{name}", {"name": name, "subjects": subjects})
        yield judges


def verdict(judges: Judges, first: Config, second: Config | None = None) -> None:
    """Create with the first, update to the second; both answers are the same."""
    if waived(STREAM_WAIVERS, first) or waived(STREAM_WAIVERS, second or {}):
        return
    try:
        if judges.same("STREAM.CREATE.V", {"name": "V", **first}) and second is not None:
            judges.same("STREAM.UPDATE.V", {"name": "V", **second}) and judges.same(
                "STREAM.INFO.V"
            ) and judges.same("STREAM.CREATE.V", {"name": "V", **second})
    finally:
        judges.ask("STREAM.DELETE.V")


@pytest.mark.parametrize(
    ("number", "pair"),
    [pytest.param(n, pair, id=f"{n}-{pair[0]}") for n, pair in enumerate(STREAM)],
)
def test_each_value_alone(judges: Judges, number: int, pair: tuple[str, Any]) -> None:
    """Created with it, and pedantic; updated to it or from it, in turns."""
    field, value = pair
    verdict(judges, {field: value})
    verdict(judges, {field: value, "pedantic": True})
    if FULL or number % 2 == 0:
        verdict(judges, {"subjects": ["v.>"]}, {"subjects": ["v.>"], field: value})
    if FULL or number % 2 == 1:
        verdict(judges, {"subjects": ["v.>"], field: value}, {"subjects": ["v.>"]})


@pytest.mark.parametrize("repeat", range(length(2, 4)))
def test_values_together(judges: Judges, repeat: int) -> None:
    @seed(seed_of(repeat))
    @CALLS
    @given(drawn(STREAM, 5), drawn(STREAM, 3), st.booleans())
    def judge(config: Config, change: Config, pedantic: bool) -> None:
        asked = {**config, "pedantic": True} if pedantic else config
        verdict(judges, asked, {**config, **change})

    judge()
