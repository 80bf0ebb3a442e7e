"""What a type checker says of each public call is what its signature says, in both shells.

The programs are made from the signatures of the public classes, one ``assert_type`` for each call that
has no type variable of its own; mypy and pyright check them as a user's code.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pelton.sync
from tests.ways import EVERY_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
CLASSES = [name for name in vars(pelton.sync)["__all__"] if name not in ("ColumnReader", "connect")]
# Calls with a type variable, or a class that users do not name: BY_HAND_ASYNCIO and BY_HAND_BLOCKING
# have those that users make.
BY_HAND = {
    "Client.detach",
    *(
        "KeyValue.typed",
        "KeyValue.with_values",
        "Request.json",
        "Service.endpoint",
        "ServiceGroup.endpoint",
    ),
    *("Publisher.publish", "Request.error", "Request.respond", "JetStream.read_columns"),
}
BY_HAND_ASYNCIO = """
async def by_hand(nc: Client, service: Service, request: Request) -> None:
    js = nc.jetstream()
    kv = await js.key_value("b")
    assert_type(kv.typed(int), KeyValue[int])
    assert_type(kv.with_values(Base64Values()), KeyValue[bytes])
    assert_type(await kv.typed(dict[str, float]).get("k"), KvEntry[dict[str, float]] | None)
    assert_type(request.json(int), int)
    assert_type(request.json(list[str]), list[str])
    await request.respond(b"")
    await request.error("500", "text")

    @service.endpoint("add")
    async def add(request: Request) -> bytes:
        return request.data

    @service.group("v1").endpoint("subtract")
    def subtract(request: Request) -> None:
        request.respond(request.data)

    assert_type(await add(request), bytes)
    assert_type(subtract(request), None)
    async with js.publisher() as publisher:
        ack = await (await publisher.publish("s", b""))
        assert_type(ack, PubAck)
    async with await nc.subscribe("s") as subscription:
        async for message in subscription:
            assert_type(message, Message)
            assert_type(message.headers, Headers)
            assert_type(message.metadata.stream_seq, int)
    async with (await js.consumer("S", "c")).consume() as messages:
        async for message in messages:
            assert_type(message, Message)
    async with js.ordered_consumer("S").consume() as ordered:
        async for message in ordered:
            assert_type(message, Message)
    async with (await js.push_consumer("S", "c")).consume() as pushed:
        async for message in pushed:
            assert_type(message, Message)
    async with await kv.typed(str).watch() as watch:
        async for entry in watch:
            assert_type(entry, KvEntry[str])
            assert_type(entry.value, str)
    assert_type(await kv.watch(), KeyWatch[bytes])
    store = await js.object_store("b")
    async with await store.watch() as watcher:
        assert_type(watcher, ObjectWatch)
        async for info in watcher:
            assert_type(info, ObjectInfo)
    async for event in nc.status():
        assert_type(event, Status)
    async with connect() as opened:
        assert_type(opened, Client)
    assert_type(await connect(), Client)
"""
BY_HAND_BLOCKING = """
def by_hand(nc: Client, service: Service, request: Request) -> None:
    js = nc.jetstream()
    kv = js.key_value("b")
    assert_type(kv.typed(int), KeyValue[int])
    assert_type(kv.with_values(Base64Values()), KeyValue[bytes])
    assert_type(kv.typed(dict[str, float]).get("k"), KvEntry[dict[str, float]] | None)
    assert_type(request.json(int), int)
    request.respond(b"")
    request.error("500", "text")

    @service.endpoint("add")
    def add(request: Request) -> bytes:
        return request.data

    assert_type(add(request), bytes)
    with js.publisher() as publisher:
        publisher.publish("s", b"")
    for columns in js.read_columns("S", 1, 2):
        assert_type(columns.count, int)
    with nc.subscribe("s") as subscription:
        for message in subscription:
            assert_type(message, Message)
            assert_type(message.headers, Headers)
    with js.consumer("S", "c").consume() as messages:
        for message in messages:
            assert_type(message, Message)
    with js.ordered_consumer("S").consume() as ordered:
        for message in ordered:
            assert_type(message, Message)
    with js.push_consumer("S", "c").consume() as pushed:
        for message in pushed:
            assert_type(message, Message)
    with kv.typed(str).watch() as watch:
        for entry in watch:
            assert_type(entry, KvEntry[str])
    with js.object_store("b").watch() as watcher:
        for info in watcher:
            assert_type(info, ObjectInfo)
    for event in nc.status():
        assert_type(event, Status)
    with connect() as opened:
        assert_type(opened, Client)
"""
HEAD = """
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Any, assert_type

{imports}
from pelton.client.sync.transport import Transport  # for the callers of detach()

given: Any = None

"""


def calls_of(kind: type) -> Iterator[tuple[str, inspect.Signature, bool]]:
    """The public calls of a class: name, signature, whether one awaits it."""
    for name in sorted(dir(kind)):
        member = inspect.getattr_static(kind, name)
        if name.startswith("_") or not inspect.isfunction(member):
            continue
        signature = inspect.signature(member)
        yield name, signature, inspect.iscoroutinefunction(member)


def expected(signature: inspect.Signature, owner: str) -> str:
    """The type that a call gives, in public names."""
    kind = signature.return_annotation
    text = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    text = re.sub(r"\b(?:pelton|collections|builtins)(?:\.\w+)*\.", "", text)
    item = {"KeyWatch": "KvEntry[bytes]", "ObjectWatch": "ObjectInfo"}.get(owner, "T")
    known = {"T": item, "V": "bytes", "Self": owner}
    for variable, means in known.items():
        text = re.sub(rf"\b{variable}\b", means, text)
    text = re.sub(r"^(KeyValue|KeyWatch|KeyTransaction)$", r"\1[bytes]", text)
    return re.sub(r"^AsyncGenerator\[(.*)\]$", r"AsyncGenerator[\1, None]", text)


def imports(*, blocking: bool) -> str:
    """Import statements for all names; those of ``pelton.sync`` come first where it has them."""
    theirs = vars(pelton.sync)["__all__"] if blocking else []
    ours = [name for name in vars(pelton)["__all__"] if name not in theirs]
    texts = [f"from pelton import ({', '.join(ours)})"]
    return "\n".join([*texts, *(f"from pelton.sync import {name}" for name in theirs)])


def program(*, blocking: bool) -> tuple[str, int]:
    """A program that makes each call once, and their number."""
    lines, count = [], 0
    for owner in CLASSES:
        kind: Any = getattr(pelton.sync if blocking else pelton, owner)
        of = f"{owner}[bytes]" if owner in ("KeyValue", "KeyWatch", "KeyTransaction") else owner
        lines.append(f"{'' if blocking else 'async '}def use_{owner}(it: {of}) -> None:")
        for call, signature, awaited in calls_of(kind):
            gives = expected(signature, owner)
            if f"{owner}.{call}" in BY_HAND:
                continue
            needed = [
                "given" if each.kind is each.POSITIONAL_OR_KEYWORD else f"{each.name}=given"
                for each in list(signature.parameters.values())[1:]
                if each.default is each.empty
                and each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)
            ]
            wait = "await " if awaited else ""
            text = f"{wait}it.{call}({', '.join(needed)})"
            # The type None cannot be asserted of what is not used as a value.
            lines.append(f"    {text}" if gives == "None" else f"    assert_type({text}, {gives})")
            count += 1
    text = HEAD.format(imports=imports(blocking=blocking)) + "\n".join(lines) + "\n"
    return text + (BY_HAND_BLOCKING if blocking else BY_HAND_ASYNCIO), count


TYPOS = """\
from pelton import Streamconfig
from pelton.sync import Jetstream
from pelton import BlockingClient
from pelton.client import connect
from pelton.pipeline import lod
from pelton.spark.tables import upsrt
from pelton.testing import Broker
from pelton.testing import Brokr
import pelton
pelton.conect
pelton.sync.conekt
"""


def mypy(files: list[Path]) -> list[str]:
    """What mypy finds."""
    options = [
        "--strict",
        "--no-error-summary",
        "--no-pretty",
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
    ]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *map(str, files)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert not done.stderr
    return done.stdout.splitlines()


@functools.cache
def has_pyright() -> bool:
    """Whether pyright starts: it needs node, and the network once."""
    command = [sys.executable, "-m", "pyright", "--version"]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def pyright(files: list[Path]) -> list[str]:
    """What pyright finds, each with the line."""
    if not has_pyright():
        pytest.skip("pyright does not start here")
    options = {"include": [*map(str, files)], "typeCheckingMode": "strict"}
    options |= {"useLibraryCodeForTypes": True, "reportUnusedImport": False}
    settings = files[0].with_name("pyrightconfig.json")
    settings.write_text(json.dumps(options))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pyright", "--outputjson"),
            *("--pythonpath", sys.executable, "--project", str(settings)),
        ],
        capture_output=True,
        text=True,
        cwd=settings.parent,
        check=False,
    )
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == len(files)
    lines = {str(file): file.read_text().splitlines() for file in files}
    return [
        f"{each['file']}: {lines[each['file']][each['range']['start']['line']].strip()}: {each['message']}"
        for each in said["generalDiagnostics"]
        if each["severity"] == "error"
    ]


# pyright reads the same signatures with the work of a dozen files of tests.
@pytest.fixture(
    scope="module", params=[mypy, pytest.param(pyright, marks=EVERY_WAY)], ids=["mypy", "pyright"]
)
def findings(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[str]]:
    """What a checker finds in each program. It is started once: what they import is most of its work."""
    asyncio, count = program(blocking=False)
    blocking, as_many = program(blocking=True)
    assert min(count, as_many) > 150
    wrong = blocking.replace("it.request(given), Message", "it.request(given), pelton.Message", 1)
    wrong = wrong.replace("from pelton import", "import pelton\nfrom pelton import", 1)
    texts = {"asyncio": asyncio, "blocking": blocking, "wrong": wrong, "typos": TYPOS}
    folder = tmp_path_factory.mktemp("programs")
    files = {name: folder / f"{name}_program.py" for name in texts}
    for name, file in files.items():
        file.write_text(texts[name])
    lines = request.param(list(files.values()))
    # by the file's name: mypy's cache tells of the same text with the folder that it had in an earlier run
    return {
        name: [line for line in lines if Path(line.partition(":")[0]).name == file.name]
        for name, file in files.items()
    }


@pytest.mark.parametrize("shell", ["asyncio", "blocking"])
def test_each_call_gives_what_its_signature_says(
    findings: dict[str, list[str]], shell: str
) -> None:
    assert findings[shell] == []


def test_a_name_that_is_mistyped_is_found(findings: dict[str, list[str]]) -> None:
    """Also in packages that import their names at first use."""
    names = ("Streamconfig", "Jetstream", "BlockingClient", "connect", "lod", "upsrt", "Brokr")
    for name in (*names, "conect", "conekt"):
        assert any(f'"{name}"' in each for each in findings["typos"]), name
    found = "\n".join(findings["typos"])
    assert 'attribute "Broker"' not in found
    assert '"Broker" is unknown' not in found


def test_checkers_see_exactly_the_names_of_a_module() -> None:
    """A function that imports names at first use is hidden from them: they would take any name for one."""
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            assert not (isinstance(node, ast.FunctionDef) and node.name == "__getattr__"), path


def test_a_wrong_type_is_found(findings: dict[str, list[str]]) -> None:
    assert len(findings["wrong"]) == 1
