"""Classes of plain values behave as dataclasses with slots do."""

from copy import copy
from dataclasses import dataclass
from dataclasses import field as field_of_dataclass
from typing import Any

import pytest

from pelton.server.fast_dataclass import FastDataclass, field, field_names


class Mine(FastDataclass):
    """What is tried."""

    name: str
    size: int = 3
    parts: list[str] = field(default_factory=list)
    secret: str = field(default="", secret=True)
    place: str = field(default="", compare=False)

    @property
    def double(self) -> int:
        return self.size * 2


@dataclass(slots=True)
class Model:
    """The same as a dataclass."""

    name: str
    size: int = 3
    parts: list[str] = field_of_dataclass(default_factory=list)
    secret: str = field_of_dataclass(default="", repr=False)
    place: str = field_of_dataclass(default="", compare=False)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    (("a",), {}),
    (("a", 4), {}),
    (("a",), {"size": 4}),
    ((), {"name": "b", "parts": ["x"], "secret": "s"}),
    (("a", 1, ["y"], "s", "p"), {}),
    (("a",), {"place": "elsewhere"}),
    ((), {}),
    ((), {"size": 3}),
    (("a",), {"name": "b"}),
    (("a",), {"strange": 1}),
    (("a", 1, [], "", "", 6), {}),
]


def made(kind: type, call: tuple[tuple[Any, ...], dict[str, Any]]) -> Any:
    given, named = call
    try:
        return kind(*given, **named)
    except TypeError:
        return None


@pytest.mark.parametrize("call", CALLS, ids=repr)
def test_made_shown_and_compared_as_a_dataclass(
    call: tuple[tuple[Any, ...], dict[str, Any]],
) -> None:
    mine, model = made(Mine, call), made(Model, call)
    assert (mine is None) == (model is None)
    if model is None:
        return
    assert repr(mine) == repr(model).replace("Model", "Mine")
    assert [getattr(mine, name) for name in field_names(Mine)] == [
        getattr(model, name) for name in Model.__slots__
    ]
    for other in CALLS:
        assert (mine == made(Mine, other)) == (model == made(Model, other))


def test_each_value_has_its_own_parts_and_no_other_attributes() -> None:
    one, other = Mine("a"), Mine("a")
    one.parts.append("x")
    assert other.parts == []
    assert one != other
    assert copy(one) == one
    assert one.double == 6
    with pytest.raises(AttributeError):
        one.strange = 1  # type: ignore[attr-defined] # that is what is tried
    with pytest.raises(TypeError):
        hash(one)
    assert one != Model("a", parts=["x"])


def test_a_copy_with_changes_leaves_the_first_as_it_was() -> None:
    one = Mine("a", 5, ["x"], "s", "p")
    other = one.with_changes(size=6)
    assert (one.size, other.size) == (5, 6)
    assert other == Mine("a", 6, ["x"], "s", "p")
    assert other.place == "p"
    with pytest.raises(TypeError):
        one.with_changes(strange=1)


def test_a_class_has_the_fields_of_the_one_it_is_made_of() -> None:
    class More(Mine):
        """One more."""

        colour: str = "red"

    more = More("a", colour="blue")
    assert field_names(More) == (*field_names(Mine), "colour")
    assert (more.name, more.colour) == ("a", "blue")
    assert more != Mine("a")
