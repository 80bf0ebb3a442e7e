"""Stream templates of 2020: the requests `$JS.TEMPLATE.`, which today's API does not have.

A template makes a stream for each new subject that a message has: `JS.1H.a` makes `JS_1H_a`. The conversations
yield a `TemplateCall`, which the engine answers (engine/lifecycles/templates).
"""

import json
from collections.abc import Callable, Generator
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from pelton.api.codec import JsonError, encode
from pelton.api.dialects.configurations import DialectError, OldStream, stream_of
from pelton.api.fields import Int
from pelton.api.streams import StreamConfig
from pelton.api.subjects import valid_name
from pelton.api.whole import decode_whole

OWNER = "_js.template"
"""The key of a stream's metadata that names the template which made it."""


class Template(Struct, kw_only=True):
    """A template; `config` is that of its streams, without their name."""

    type_name = "StreamTemplateConfig"
    name: str = ""
    max_streams: Int = 0
    config: OldStream = field(default_factory=OldStream)


class TemplateCall(Struct, frozen=True):
    """Asks for one thing: "create" (`given`), "delete", "info", "list". The answer: for "info" the
    template and the names of its streams, for "list" names, else None. DialectError is a refusal.
    """

    action: str
    name: str = ""
    given: Template | None = None


_Conversation = Generator[TemplateCall, Any, bytes]


def config_of(template: Template, name: str, subjects: list[str]) -> StreamConfig:
    """Today's configuration of a stream that the template makes. DialectError: it is not valid."""
    old = replace(template.config, name=name, subjects=subjects, template_owner=template.name)
    return stream_of(old)


def stream_name(subject: str) -> str:
    """The name of the stream for a subject."""
    return subject.replace(".", "_")


def _create(name: str, body: bytes) -> _Conversation:
    try:
        given = decode_whole(Template, body)
    except JsonError:
        raise DialectError("bad request") from None
    if given.name != name:
        raise DialectError("template name in subject does not match request")
    if given.config.name:
        raise DialectError("template config name should be empty")
    if given.max_streams < 0 or not valid_name(name):
        raise DialectError("bad request")
    if not given.config.subjects:
        raise DialectError("template config needs subjects")
    yield TemplateCall("create", name, given)
    return b"+OK"


def _delete(name: str, body: bytes) -> _Conversation:
    yield TemplateCall("delete", name)
    return b"+OK"


def _info(name: str, body: bytes) -> _Conversation:
    template, streams = yield TemplateCall("info", name)
    return _json({"config": json.loads(encode(template)), "streams": streams})


def _list(body: bytes) -> _Conversation:
    names = yield TemplateCall("list")
    return _json(names or None)


def _json(value: object) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode("utf-8", "surrogateescape")


ROWS: tuple[tuple[str, Callable[..., _Conversation], bool], ...] = (
    ("TEMPLATE.LIST", _list, False),
    ("TEMPLATE.*.CREATE", _create, False),
    ("TEMPLATE.*.INFO", _info, True),
    ("TEMPLATE.*.DELETE", _delete, True),
)
"""Pattern, conversation, whether the body must be empty."""
