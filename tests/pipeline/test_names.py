"""Subjects of files: never shared, always ones a server takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.pipeline.logs.names import path_of, refusal, subject_of, subjects_of, token
from pelton.pipeline.logs.rotation import is_left_out, originals

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
    path = "/" + text.lstrip("/")
    assert path_of(subject_of("box", path, "1-2-3-a-0")) == path


def test_a_name_that_is_not_utf8():
    name = b"/var/log/caf\xe9.log".decode("utf-8", "surrogateescape")
    subject = subject_of("box", name, "1-2-3-a-0")
    assert subject == "logs.box.var/log/caf=E9_log.1-2-3-a-0"
    assert path_of(subject) == name


def test_the_example():
    path = "/var/log/apt/history.log"
    subject = subject_of("web-1.example.org", path, "801-5c2-1f-0a1b2c3d4e5f6071-0")
    assert subject == (
        "logs.web-1_example_org.var/log/apt/history_log.801-5c2-1f-0a1b2c3d4e5f6071-0"
    )
    assert subjects_of("web-1.example.org", path) == (
        "logs.web-1_example_org.var/log/apt/history_log.*"
    )


def test_names_that_no_message_can_have():
    assert refusal("box", "/var/log/a.log") is None
    assert refusal("box", "/var/log/" + "a" * 3000) is None
    assert "line end" in refusal("box", "/var/log/a\nb.log")
    assert "line end" in refusal("box", "/var/log/a\rb.log")
    assert "too long" in refusal("box", "/var/log/" + "\u00e4" * 700)


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("app.log.1", "app.log"),
        ("app.log.12.gz", "app.log"),
        ("app.log.gz", "app.log"),
        ("app.1.log", "app.log"),
        ("app.log-20260102", "app.log"),
        ("app.log-20260102-1767312000.gz", "app.log"),
        ("app.log.2026-01-02", "app.log"),
        ("app.log.2026-01-02_12:00", "app.log"),
        ("app.log.2026-01-02.3", "app.log"),
        ("app-2026-01-02.log", "app.log"),
        ("app-2026-01-02T12-00-00.000.log", "app.log"),
        ("app-1.1.log", "app-1.log"),
        ("app.log.old", "app.log"),
        ("app.old.log", "app.log"),
        ("messages-20260102", "messages"),
    ],
)
def test_names_of_rotations(name, before):
    assert before in originals(name)
    assert name not in originals(name)


def test_names_that_a_folder_means_or_not():
    for name in ("app.log.1", "app.log.2026-01-02", "app.log-20260102", "a.log.gz", "a.log.old"):
        assert is_left_out(name)
    for name in ("app.log", "app-1.log", "app-2026-01-02.log", "app.1.log", "syslog"):
        assert not is_left_out(name)
    assert originals("app.log") == set()
    assert originals("app-error.log") == set()
