"""Options of reading a bucket: every row reads what it promises, and says what is wrong."""

import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.subjects import matches
from pelton.spark.buckets.kv_options import ROWS, key_patterns, overlapping, parse_kv_options
from pelton.spark.parsing import OptionError


def test_all_together():
    options = parse_kv_options(
        {"BUCKET": "b", "Keys": "a.>, c.*,a.b", "deletes": "TRUE", "startingOffsets": "41"},
        streaming=True,
    )
    assert (options.bucket, options.keys, options.deletes) == ("b", ("a.>", "c.*"), True)
    assert options.starting == 41
    assert pickle.loads(pickle.dumps(options)) == options
    assert parse_kv_options({"bucket": "b"}, streaming=False).keys == (">",)
    ended = parse_kv_options({"bucket": "b", "endingOffsets": "latest"}, streaming=False)
    assert ended.ending is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bucket", ""),
        ("bucket", "a.b"),
        ("bucket", "KV x"),
        ("keys", " , "),
        ("keys", "a..b"),
        ("keys", ">.a"),
        ("deletes", "yes"),
        ("startingOffsets", "0"),
        ("startingOffsets", "2026-10-16"),
        ("startingOffsets", "\u0663"),
        ("maxOffsetsPerTrigger", "0"),
    ],
)
def test_bad_values_name_the_option_and_what_is_right(name, text):
    with pytest.raises(OptionError, match=rf"option {name} is .*, but must be .+"):
        parse_kv_options({"bucket": "b", name: text}, streaming=True)


@pytest.mark.parametrize(
    ("given_options", "streaming", "word"),
    [
        ({}, False, "bucket is missing"),
        ({"bucket": "b", "endingOffsets": "5"}, True, "batch"),
        ({"bucket": "b", "startingOffsets": "5"}, False, "change feeds"),
        ({"bucket": "b", "endingOffsets": "earliest"}, False, "latest or a revision"),
        ({"bucket": "b", "sheep": "5"}, False, "no option 'sheep'.*keys"),
        ({"bucket": "b", "token": "t", "user": "u"}, False, "either token"),
    ],
)
def test_options_that_do_not_go_together(given_options, streaming, word):
    with pytest.raises(OptionError, match=word):
        parse_kv_options(given_options, streaming=streaming)


TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.lists(
    st.lists(TOKENS, min_size=1, max_size=3).map(".".join)
    | st.lists(TOKENS, min_size=0, max_size=2).map(lambda tokens: ".".join([*tokens, ">"])),
    min_size=1,
    max_size=4,
)


@given(PATTERNS, st.lists(st.sampled_from("ab"), min_size=1, max_size=4).map(".".join))
def test_patterns_that_are_left_out_change_nothing(patterns, key):
    kept = key_patterns(",".join(patterns))
    assert any(matches(key, one) for one in kept) == any(matches(key, one) for one in patterns)
    if not overlapping(kept):
        assert sum(matches(key, one) for one in kept) <= 1


def test_the_reference_names_every_option():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "spark-kv.md").read_text()
    table = page.partition("## Options of reading")[2].partition("\n## ")[0]
    documented = set(re.findall(r"^\| (`[^|]*`) \|", table, re.MULTILINE))
    names = {name.strip(" `") for cell in documented for name in cell.split(",")}
    assert names == {row.name for row in ROWS}
