"""The language of configuration files."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.server.config.grammar import Item, parse
from pelton.server.errors import ConfigError


def plain(value):
    """A tree without places."""
    if isinstance(value, Item):
        return plain(value.value)
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def read(text, **more):
    return plain(parse(text, "t.conf", **more).items)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", {}),
        ("# nothing\n// here\n", {}),
        ("a: 1", {"a": 1}),
        ("a = 1", {"a": 1}),
        ("a 1", {"a": 1}),
        ("a:1\r\nb:2\r\n", {"a": 1, "b": 2}),
        ("a: 1, b: 2; c: 3", {"a": 1, "b": 2, "c": 3}),
        ("a: x # y", {"a": "x"}),
        ("a: x // y", {"a": "x"}),
        ("a: x#y", {"a": "x#y"}),
        ("a: nats://h:4222", {"a": "nats://h:4222"}),
        ("a: 127.0.0.1:4222", {"a": "127.0.0.1:4222"}),
        ("a: 10s", {"a": "10s"}),
        ("a: 1.5", {"a": 1.5}),
        ("a: -3", {"a": -3}),
        ("a: -x", {"a": "-x"}),
        ("a: yes\nb: OFF\nc: True", {"a": True, "b": False, "c": True}),
        ('a: "yes"', {"a": "yes"}),
        ("a: 'x\\ty'", {"a": "x\\ty"}),
        (r'a: "x\ty\x41\"\\\n"', {"a": 'x\tyA"\\\n'}),
        ("'a b': 1\n\"c\" 2", {"a b": 1, "c": 2}),
        ("a { b: 1 }", {"a": {"b": 1}}),
        ("a\n{\n b: 1\n}\n", {"a": {"b": 1}}),
        ("a: { b: { c: [1, 2] } }", {"a": {"b": {"c": [1, 2]}}}),
        ("a: [1, 2,\n3\n4]", {"a": [1, 2, 3, 4]}),
        ("a: [{b: 1}, {b: 2}]", {"a": [{"b": 1}, {"b": 2}]}),
        ("a: []\nb: {}", {"a": [], "b": {}}),
        ("a: (\n one\n two )x\n)\nb: 1", {"a": " one\n two )x", "b": 1}),
        ("a: 1\na: 2", {"a": 2}),
        ("{ a: 1 }", {"a": 1}),
        ('{"a": [true, "x", 1.5, {"b": 2}]}', {"a": [True, "x", 1.5, {"b": 2}]}),
        ("X: 5\na: $X", {"X": 5, "a": 5}),
        ("X: [1]\na { b: $X }", {"X": [1], "a": {"b": [1]}}),
        ("X: 1\na { X: 2, b: $X }", {"X": 1, "a": {"X": 2, "b": 2}}),
        ("p: $2a$11$abc", {"p": "$2a$11$abc"}),
        ("include: 3", {"include": 3}),
    ],
)
def test_texts_and_their_trees(text, tree):
    assert read(text) == tree


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1k", 1000),
        ("1kb", 1024),
        ("1Ki", 1024),
        ("1KiB", 1024),
        ("64MB", 64 * 1024**2),
        ("2g", 2 * 1000**3),
        ("1TiB", 1024**4),
        ("1p", 1000**5),
        ("1E", 1000**6),
    ],
)
def test_sizes(text, size):
    assert read(f"a: {text}") == {"a": size}


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("a:\n4222", "1:3", 'key "a" has no value'),
        ("a: 1 b: 2", "1:6", "expected the end of the line"),
        ("a: [1 2]", "1:7", "expected the end of the line or a comma"),
        ("a: [", "1:5", 'the end of the array "]"'),
        ("x {\n y: 1\n", "3:1", 'the end of the map "}"'),
        ('a: "x', "1:4", "not closed"),
        ("a: 'x", "1:4", "not closed"),
        ("a: (\n x", "1:4", "block string"),
        (r'a: "\q"', "1:5", r"invalid escape \q"),
        (r'a: "\xg0"', "1:5", "two hexadecimal digits"),
        ("\n a: $NOPE", "2:2", "variable $NOPE"),
        ("a: $a", "1:1", "variable $a"),
        ("= 3", "1:1", "expected a key"),
        ("]", "1:1", "expected a key"),
        ("a: 1}", "1:5", "expected the end of the line"),
        ("include\n", "1:8", "include has no path"),
        ("a: {" * 200, None, "nested more than"),
    ],
)
def test_a_mistake_is_told_with_its_place(text, place, message):
    with pytest.raises(ConfigError) as caught:
        parse(text, "t.conf", environ={})
    assert message in str(caught.value)
    if place:
        assert str(caught.value).startswith(f"t.conf:{place}: ")


def test_variables_come_from_the_environment_as_values():
    environ = {"N": "42", "T": '"true"', "L": "[1, 2]", "B": "yes", "V": "$N", "LOOP": "$LOOP"}
    text = "a: $N\nb: $T\nc: $L\nd: $B\ne: $V"
    expected = {"a": 42, "b": "true", "c": [1, 2], "d": True, "e": 42}
    assert read(text, environ=environ) == expected
    with pytest.raises(ConfigError, match="variable"):
        parse("a: $LOOP", environ=environ)


def test_an_include_is_merged_where_it_stands():
    files = {"x.conf": "b: 2\nY: 7", "deep.conf": "include x.conf\nc: $Y"}

    def read_include(including, path):
        return path, files[path]

    text = "a: 1\ninclude 'deep.conf'\nm { include x.conf }\nd: $Y"
    expected = {"a": 1, "b": 2, "Y": 7, "c": 7, "m": {"b": 2, "Y": 7}, "d": 7}
    assert read(text, read_include=read_include) == expected


def test_a_missing_include_and_an_endless_one_are_mistakes():
    def missing(including, path):
        raise FileNotFoundError(2, "No such file or directory")

    with pytest.raises(
        ConfigError, match=r"t.conf:2:8: Parse error: can't include no.conf: No such file"
    ):
        parse("a: 1\ninclude no.conf", "t.conf", read_include=missing)
    with pytest.raises(ConfigError, match="nested too deep"):
        parse("include a", "t.conf", read_include=lambda _, path: (path, "include a"))


def test_every_value_knows_its_place():
    tree = parse("a: 1\n  b {\n c: [1,\n  2]\n}", "t.conf")
    b = tree.items["b"]
    c = b.value["c"]
    assert [item.place for item in (tree.items["a"], b, c, c.value[1])] == [
        "t.conf:1:1",
        "t.conf:2:3",
        "t.conf:3:2",
        "t.conf:4:3",
    ]


KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8).filter(
    lambda key: key != "include"
)
TREES = st.recursive(
    st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, TREES, max_size=5))
def test_json_is_a_subset(tree):
    text = json.dumps(tree, ensure_ascii=False)
    # the language knows five of JSON's escapes; the rest stands for itself
    if "\\u" in text or "\\b" in text or "\\f" in text:
        return
    assert read(text) == tree


@given(st.text(max_size=60))
def test_any_text_is_a_tree_or_a_mistake(text):
    mistake = ""
    try:
        parse(text, "t.conf", environ={})
    except ConfigError as problem:
        mistake = str(problem)
    assert mistake == "" or mistake.startswith("t.conf:")


def test_a_long_file_takes_as_long_for_each_line_as_a_short_one():
    def seconds(lines):
        text = "x: [\n" + "".join(f'"s.{number}"\n' for number in range(lines)) + "]\n"
        times = []
        for _ in range(3):
            begin = time.process_time()
            read(text)
            times.append((time.process_time() - begin) / lines)
        return min(times)

    assert seconds(40_000) < 4 * seconds(2_000)
