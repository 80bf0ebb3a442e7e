"""Requests to the JetStream API that are as large as max_payload, each so in another way.

Every field of every request is blown up with every kind of content its type can have: lists of short
texts, of wildcards, of tokens without end, of nulls; maps; numbers of many digits. Beside them
bodies that are no request at all. `bench/bench_stalls.py` measures what each costs the other
clients of a server, `tests/engine/test_heavy_requests.py` counts the work and reads the answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from pelton.engine.calls.dispatch import CALLS, Call

STREAM = "S"  # what there has to be: a stream with this name,
CONSUMER = "c"  # and a consumer of it
NEW = "H"  # a name that is free

Many = Callable[[int], Any]  # content of about so many bytes


@dataclass(frozen=True)
class Heavy:
    """One request: what it is, for people; the subject behind `$JS.API.`; the body."""

    name: str
    call: str
    body: bytes


def _texts(make: Callable[[int], str], *, each: int = 0) -> Callable[[int], list[str]]:
    """A list of texts; `each`: bytes that one takes, when that is not small."""

    def many(size: int) -> list[str]:
        out: list[str] = []
        used = 0
        while used < size:
            text = make(len(out))
            used += max(len(text.encode("utf-8", "surrogatepass")), each) + 3
            out.append(text)
        return out

    return many


def _short(number: int) -> str:
    """Few letters, another for each number."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    text = letters[number % 26]
    while number := number // 26:
        text += letters[number % 26]
    return text


STRING: dict[str, Many] = {
    "long": lambda size: "x" * size,
    "tokens": lambda size: ".".join("x" * (size // 2)),
    "stars": lambda size: ".".join("*" * (size // 2)),
    "dots": lambda size: "." * size,
    "words": lambda size: "x " * (size // 2),
    "digits": lambda size: "9" * size,
    "braces": lambda size: "{{" * (size // 2),
    "functions": lambda size: ".".join(["{{wildcard(1)}}"] * (size // 16)),
    "arguments": lambda size: "{{partition(3" + ",1" * (size // 2) + ")}}",
    "unicode": lambda size: "\u00e9" * (size // 2),
    "controls": lambda size: "\u0000" * (size // 6),
}
STRINGS: dict[str, Many] = {
    "literals": _texts(_short),
    "two tokens": _texts(lambda n: f"{_short(n)}.{_short(n)}"),
    "wildcards": _texts(lambda n: f"{_short(n)}.*.>"),
    "crossing": _texts(lambda n: f"{_short(n)}.q" if n % 2 else f"*.r{_short(n)}"),
    "masks": _texts(
        lambda n: ".".join("*" if n >> bit & 1 else _short(n) for bit in range(16)) + f".{n}"
    ),
    "tails": _texts(lambda n: ".".join(_short(n) * 3) + ".>"),
    "same": _texts(lambda n: "a"),
    "empty": _texts(lambda n: ""),
    "all": _texts(lambda n: ">"),
    "bad": _texts(lambda n: f"a b{n}" if n > 5000 else _short(n)),
    "deep": _texts(lambda n: ".".join(["t"] * 3000) + f".{n}"),
    "nulls": lambda size: [None] * (size // 5),
    "numbers": lambda size: [1] * (size // 2),
    "lists": lambda size: [[]] * (size // 3),
}
NUMBERS: dict[str, Many] = {"ones": lambda size: [1] * (size // 3), "nulls": STRINGS["nulls"]}
MAPS: dict[str, Many] = {
    "short": lambda size: {_short(n): "" for n in range(size // 10)},
    "nulls": lambda size: {_short(n): None for n in range(size // 12)},
    "one key": lambda size: {"k": "v" * size},
    "reserved": lambda size: {f"_nats.{n}": "" for n in range(size // 18)},
}


def requests(size: int) -> Iterator[Heavy]:
    """All of them, each of about so many bytes."""
    seen = set()
    for call in CALLS:
        words = [token if token not in ("*", ">") else "?" for token in call.pattern.split(".")]
        subject = ".".join(_names(words, call))
        for path, kind, many in _blown(call.request):
            body = _base(call)
            _put(body, path, many(size - 200))
            text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
            name = f"{call.pattern} {'.'.join(path)}: {kind}"
            if name not in seen:
                seen.add(name)
                yield Heavy(name, subject, text)
    for name, text in bodies(size):
        for pattern in (
            "STREAM.CREATE.H",
            "CONSUMER.CREATE.S.n",
            "STREAM.NAMES",
            "STREAM.MSG.GET.S",
        ):
            yield Heavy(f"{pattern} {name}", pattern, text)
        for pattern in ("CONSUMER.RESET.S.c", "CONSUMER.UNPIN.S.c", "STREAM.DELETE.none"):
            yield Heavy(f"{pattern} {name}", pattern, text)


def bodies(size: int) -> Iterator[tuple[str, bytes]]:
    """Bodies that are no request, or hardly one."""
    yield "deep lists", b"[" * size
    yield "deep maps", b'{"a":' * (size // 5)
    yield "closed lists", b"[" * (size // 2) + b"]" * (size // 2)
    yield "nested field", b'{"subjects":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"
    yield "shallow nests", b'{"x":[' + b"[[[]]]," * (size // 8) + b"1]}"
    yield "documents", b"{} " * (size // 3)
    yield "filled documents", b'{"name":"H"}' * (size // 12)
    yield "nulls", b"null " * (size // 5)
    yield "unknown keys", b"{" + b",".join(b'"k%d":1' % n for n in range(size // 12)) + b"}"
    yield "same keys", b'{"name":"H"' + b',"name":"H"' * (size // 11) + b"}"
    yield "same lists", b'{"name":"H"' + b',"subjects":["a"]' * (size // 17) + b"}"
    yield "other case", b'{"name":"H"' + b',"nAmE":"H"' * (size // 11) + b"}"
    yield "blanks", b" " * (size - 12) + b'{"name":"H"}'
    yield "blanks behind", b'{"name":"H"}' + b" " * (size - 12)
    yield "digits", b'{"max_msgs":' + b"9" * size + b"}"
    yield "fraction", b'{"max_msgs":0.' + b"9" * size + b"}"
    yield "exponent", b'{"max_msgs":1e' + b"9" * size + b"}"
    yield "power", b'{"max_msgs":1e999999999}'
    yield "numbers", b'{"subjects":[' + b"1," * (size // 2) + b"1]}"
    yield "long numbers", b'{"x":[' + (b"9" * 99 + b",") * (size // 100) + b"1]}"
    yield "escapes", b'{"name":"' + b"\\u0041" * (size // 6) + b'"}'
    yield "half pairs", b'{"description":"' + b"\\ud800" * (size // 6) + b'"}'
    yield "many half pairs", b'{"subjects":[' + b'"\\ud800",' * (size // 9) + b'""]}'
    yield "no UTF-8", b'{"description":"' + b"\xff" * size + b'"}'
    yield "bytes", b"\xff" * size
    yield "open text", b'{"description":"' + b"x" * size
    yield "open list", b'{"subjects":["a"' + b',"a"' * (size // 4)
    yield "late fault", b'{"subjects":["a"' + b',"a"' * (size // 4) + b"]!"
    yield "late escape", b'{"description":"' + b"x" * size + b'\\q"}'
    yield "quotes", b'"' * size
    yield "colons", b"{:" * (size // 2)


def _names(words: list[str], call: Call) -> Iterator[str]:
    places = iter(
        [NEW if "CREATE" in call.pattern or "RESTORE" in call.pattern else STREAM]
        if words[0] == "STREAM"
        else [STREAM, "n" if "CREATE" in call.pattern else CONSUMER, "f"]
    )
    return (word if word != "?" else next(places) for word in words)


def _base(call: Call) -> dict[str, Any]:
    """The smallest body that gets past the first checks."""
    if call.pattern in ("STREAM.CREATE.*", "STREAM.UPDATE.*"):
        return {"name": NEW if "CREATE" in call.pattern else STREAM, "storage": "memory"}
    if call.pattern == "STREAM.RESTORE.*":
        return {"config": {"name": NEW, "storage": "memory"}}
    if "CREATE" in call.pattern:
        config = {"durable_name": "n"} if call.pattern.count("*") == 2 else {}
        return {"stream_name": STREAM, "config": config}
    return {"deliver_subject": "d"} if "SNAPSHOT" in call.pattern else {}


def _put(body: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        body = body.setdefault(name, {})
    body[path[-1]] = value


def _blown(kind: type[msgspec.Struct]) -> Iterator[tuple[tuple[str, ...], str, Many]]:
    hints = get_type_hints(kind, include_extras=True)
    for name in kind.__struct_fields__:
        for path, what, many in _contents(_bare(hints[name])):
            yield (name, *path), what, many


def _bare(hint: Any) -> Any:
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        return _bare(next(part for part in get_args(hint) if part is not type(None)))
    return hint


def _contents(hint: Any) -> Iterator[tuple[tuple[str, ...], str, Many]]:
    origin = get_origin(hint)
    if hint is str:
        table = STRING
    elif origin is dict:
        table = MAPS
    elif origin is list and _bare(get_args(hint)[0]) is str:
        table = STRINGS
    elif origin is list and _is_struct(_bare(get_args(hint)[0])):
        yield from _structs(_bare(get_args(hint)[0]))
        return
    elif origin is list:
        table = NUMBERS
    elif _is_struct(hint):
        yield from _blown(hint)
        return
    else:
        table = {"digits": STRING["digits"]}
    for what, many in table.items():
        yield (), what, many


def _is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def _structs(kind: type[msgspec.Struct]) -> Iterator[tuple[tuple[str, ...], str, Many]]:
    """Lists of objects: empty ones, ones that differ in one text, one whose field is large."""
    texts = [
        name
        for name, hint in get_type_hints(kind, include_extras=True).items()
        if name in kind.__struct_fields__ and _bare(hint) is str
    ]
    yield (), "empty objects", lambda size: [{}] * (size // 3)
    yield (), "null objects", lambda size: [None] * (size // 5)
    for name in texts:
        for what in ("literals", "wildcards", "crossing", "deep"):
            yield (), f"{name} {what}", _listed(name, STRINGS[what])
    yield (), "all texts", _full(texts)
    for path, what, many in _blown(kind):
        yield (), f"one {'.'.join(path)}: {what}", _single(path, many)


def _listed(name: str, many: Many) -> Many:
    def make(size: int) -> Any:
        texts = many(size)
        share = sum(map(len, texts)) / len(texts) + 3
        return [{name: text} for text in texts[: int(size / (share + len(name) + 6)) + 1]]

    return make


def _full(names: list[str]) -> Many:
    def make(size: int) -> Any:
        each = sum(len(name) + 12 for name in names)
        return [{name: _short(n) for name in names} for n in range(size // each)]

    return make


def _single(path: tuple[str, ...], many: Many) -> Many:
    def make(size: int) -> Any:
        one: dict[str, Any] = {"name": "O"}
        _put(one, path, many(size))
        return [one]

    return make
