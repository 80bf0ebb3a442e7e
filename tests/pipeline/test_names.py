"""Subjects of files: never shared, always ones a server takes."""

import re

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.logs.names import subject_of, token

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def decode(encoded: str) -> str:
    if encoded == "=":
        return ""
    dots = encoded.replace("_", ".")
    raw = re.sub(rb"=([0-9A-F]{2})", lambda hit: bytes([int(hit[1], 16)]), dots.encode())
    return raw.decode()


@given(texts)
def test_a_token_can_be_read_back_and_is_one_token(text):
    encoded = token(text)
    assert decode(encoded) == text
    assert encoded
    assert not re.search(r"[\s.*>]", encoded)
    assert encoded.isascii()


def test_a_name_that_is_not_utf8():
    name = b"/var/log/caf\xe9.log".decode("utf-8", "surrogateescape")
    assert subject_of("box", name) == "logs.box.var/log/caf=E9_log"


def test_the_example():
    subject = subject_of("web-1.example.org", "/var/log/apt/history.log")
    assert subject == "logs.web-1_example_org.var/log/apt/history_log"
