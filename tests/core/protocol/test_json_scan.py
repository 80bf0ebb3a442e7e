"""Texts that hold no Unicode: what becomes of them, beside a parser and a replacement one by one."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from pelton.core.protocol.json_scan import blanks, document, unicode_only

LONE = re.compile("[\ud800-\udfff]")
PIECES = st.sampled_from(
    ["\\ud800", "\\udc00", "\\u0041", "\\\\", "\\n", "u", "x", "\\uD83D\\uDE00", '\\"', "é", "d800"]
)


@given(st.text(st.sampled_from("ab\ud800\udc00é\udfff😀\\u")))
def test_lone_surrogates_become_replacement_characters(text: str) -> None:
    assert unicode_only(text) == LONE.sub("\ufffd", text)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_so_do_those_that_are_written_as_escapes(text: str) -> None:
    written = f'"{text}"'
    read = json.loads(unicode_only(written, escapes=True))
    assert read == LONE.sub("\ufffd", json.loads(written))


def test_nesting_is_bounded_by_what_is_asked() -> None:
    text = b" " + b"[" * 50 + b"]" * 50 + b" 1"
    assert blanks(text, 0) == 1
    assert document(text, 1, 50) == (101, -1)
    assert document(text, 1, 49)[1] == 9
