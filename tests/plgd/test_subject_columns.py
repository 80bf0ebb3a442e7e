"""Subjects of many messages at once: what `parse_subject` says of each by itself."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pelton.plgd import EVENT_TYPES, Kind, Subject, parse_subject
from pelton.plgd.reasons import UndecodableEventError
from pelton.plgd.subject_columns import Places
from tests.plgd import vectors

TOKENS = st.sampled_from(["plgd", "owners", "devices", "events", "leadrt", "a", "", "ü\n", "x.y"])
KINDS = st.sampled_from([kind.value for kind in Kind] + ["other"])
TYPES = st.sampled_from([*EVENT_TYPES, "resourcechanging", ""])
LEADS = st.sampled_from(
    ["", ".leadrt", ".leadrt.oic.r", ".leadrt..r", ".leadrt.", ".leadrtx", ".x.leadrt", ".leadrt.a"]
)
HREFS = st.sampled_from(["", ".h", ".h.i", "."])
ODD = st.lists(TOKENS | KINDS | TYPES, max_size=12).map(".".join) | st.text(max_size=20)
USUAL = st.builds(
    "plgd.owners.{}.devices.{}.{}{}.{}{}".format, TOKENS, TOKENS, KINDS, HREFS, TYPES, LEADS
)
GOOD = st.sampled_from([vectors.CHANGED_SUBJECT, vectors.REGISTERED_SUBJECT])


def parsed(subject: str) -> Subject | UndecodableEventError:
    try:
        return parse_subject(subject)
    except UndecodableEventError as bad:
        return bad


@given(st.lists(USUAL | ODD | GOOD, max_size=10, unique=True))
def test_many_subjects_say_what_each_says(subjects: list[str]) -> None:
    places = Places(pa.array(subjects, pa.string()))
    names = ("owner_id", "device_id", "lead_type")
    columns = {name: places.column(name).to_pylist() for name in names}
    types = {number: name for name, number in places.plain.items()}
    for place, subject in enumerate(subjects):
        told = {name: columns[name][place] for name in names}
        found, one = places.at(place), parsed(subject)
        if isinstance(one, UndecodableEventError):
            assert isinstance(found, UndecodableEventError)
            assert (found.reason, found.detail) == (one.reason, one.detail)
            assert (told, places.type_of[place]) == (dict.fromkeys(names), -1)
            continue
        assert found == one
        assert told == {name: getattr(one, name) for name in names}
        assert types[places.type_of[place]] == one.event_type


def test_a_message_without_a_subject_has_the_last_place() -> None:
    places = Places(pa.array([vectors.CHANGED_SUBJECT]))
    bad = places.at(1)
    assert isinstance(bad, UndecodableEventError)
    assert bad.detail == "no subject"
    assert np.array_equal(places.type_of, [0, -1])
    assert places.column("device_id").to_pylist()[1] is None
