"""The JSON scanner accepts what a JSON parser accepts, and says where everything else is wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.api.scan import JsonFaultError, documents

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BLANKS = st.text(alphabet=" \t\r\n", max_size=3)


def strictly(text: str) -> object:
    """A parser without Python's extensions."""

    def refuse(word: str) -> object:
        raise ValueError(word)

    return json.loads(text, parse_constant=refuse)


@given(st.lists(VALUES, max_size=4), BLANKS)
def test_documents_are_told_apart(values: list[object], blanks: str) -> None:
    text = blanks.join(f"{json.dumps(value)} " for value in values) + blanks
    assert [json.loads(part) for part in documents(text.encode())] == values


@given(VALUES, st.data())
def test_every_cut_is_noticed(value: object, data: st.DataObject) -> None:
    text = json.dumps([value])
    end = data.draw(st.integers(min_value=1, max_value=len(text) - 1))
    with pytest.raises(JsonFaultError, match="unexpected EOF"):
        list(documents(text[:end].encode()))


@given(VALUES, st.data())
def test_it_agrees_with_a_parser_about_damaged_texts(value: object, data: st.DataObject) -> None:
    text = json.dumps({"a": value})
    where = data.draw(st.integers(min_value=0, max_value=len(text) - 1))
    letter = data.draw(st.sampled_from('{}[]:,"\\0-e.x t\n'))
    damaged = text[:where] + letter + text[where + 1 :]
    try:
        strictly(damaged)
        good = True
    except ValueError:
        good = False
    try:
        ours = len(list(documents(damaged.encode()))) == 1
    except JsonFaultError:
        ours = False
    assert ours == good


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "unexpected EOF"),
        ("x", "invalid character 'x' looking for beginning of value at offset 1"),
        ('{"a":1} x', "invalid character 'x' looking for beginning of value at offset 9"),
        (
            '{"a":1,}',
            "invalid character '}' looking for beginning of object key string at offset 8",
        ),
        ('{"a":1 "c"}', "invalid character '\"' after object key:value pair at offset 8"),
        ('{"a":"\\x"}', "invalid escape sequence `\\x` in string at offset 8"),
        ('{"a":"\n"}', "invalid character '\\n' in string at offset 7"),
        ("[1 2]", "invalid character '2' after array element at offset 4"),
        ("nulx", "invalid character 'x' in literal null (expecting 'l') at offset 4"),
        ("ÿ", "invalid character 'ÿ' looking for beginning of value at offset 2"),
        ("[" * 10_001, "exceeded max depth"),
    ],
)
def test_faults_are_named_as_servers_name_them(text: str, fault: str) -> None:
    with pytest.raises(JsonFaultError) as caught:
        list(documents(text.encode()))
    assert str(caught.value) == fault
