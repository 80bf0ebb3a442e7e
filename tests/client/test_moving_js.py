"""The page for users of nats.js: what its tables name exists on both sides."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.client.test_moving import PAGE as NATS_PY_PAGE
from tests.client.test_moving import Named, check, spans
from tests.server.websocket.modules import need_modules

if TYPE_CHECKING:
    from pathlib import Path

PAGE = NATS_PY_PAGE.with_name("move-from-nats-js.md")
SPANS = spans(PAGE, "nats.js")

# In our column: words that are no calls, and names of modules of Python.
WORDS = re.compile(
    r"async (for|with)|await|None|datetime|timedelta|asyncio\.gather|json\.(dumps|loads)"
    r"|(str|bytes)\.(en|de)code|msg_id|max_value_size|filter_subjects|action|connect|count|code|err_code"
    r'|description|headers=\{"k": \["v"\]\}'
)
# In theirs: variables of the examples, and words of JavaScript.
VARIABLES = re.compile(
    "nc|js|jsm|kv|os|c|m|e|h|pa|sc|sub|messages|group|service|watch|err|data|opts|info|until|stream|seed"
    "|creds|jwt|other|kvm|objm|svcm"
)
JAVASCRIPT = re.compile("for|await|null|new|true|false|Promise|all|Date")


def wrong_of_ours(found: list[Named]) -> list[str]:
    """What our column names that is not there."""
    wrong = []
    for span in found:
        if not span.ours or WORDS.fullmatch(span.text):
            continue
        try:
            check(span)
        except (AssertionError, TypeError, SyntaxError) as error:
            wrong.append(f"line {span.line}: {span.text}: {error}")
    return wrong


def wrong_of_theirs(found: list[Named], known: set[str]) -> list[str]:
    """What their column names that is in no declaration of nats.js."""
    wrong = []
    for span in found:
        if not span.ours:
            names = set(re.findall(r"[A-Za-z]\w*", re.sub(r'"[^"]*"', "", span.text)))
            wrong += [
                f"line {span.line}: {name}"
                for name in sorted(names - known)
                if not VARIABLES.fullmatch(name) and not JAVASCRIPT.fullmatch(name)
            ]
    return wrong


@pytest.fixture(scope="module")
def declared() -> set[str]:
    """The names in the declarations of versions 2 and 3; both halves of 2 are in nats.ws, too."""
    folder = need_modules("nats.ws", "@nats-io/jetstream", "@nats-io/kv", "@nats-io/obj")
    files: list[Path] = [
        *folder.glob("nats.ws/lib/**/*.d.ts"),
        *folder.glob("@nats-io/*/lib/**/*.d.ts"),
    ]
    text = "\n".join(file.read_text("utf-8") for file in files)
    code = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)
    return set(re.findall(r"\w+", code))


def test_what_we_have_exists() -> None:
    assert len(SPANS) > 300
    assert wrong_of_ours(SPANS) == []


def test_what_nats_js_has_exists(declared: set[str]) -> None:
    assert wrong_of_theirs(SPANS, declared) == []


def test_a_wrong_name_is_found(declared: set[str]) -> None:
    theirs = [Named(1, False, 'jsm.streams.ad({ name: "x" })'), Named(2, False, "nc.flush()")]
    assert wrong_of_theirs(theirs, declared) == ["line 1: ad"]
    ours = [Named(1, True, "js.creat_stream('x')"), Named(2, True, "nc.flush()")]
    assert len(wrong_of_ours(ours)) == 1
