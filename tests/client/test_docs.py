"""The examples of the how-to run against a real server."""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import re
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pelton.embedded
import pelton.sync
import pelton.testing
from pelton import ConsumerConfig, KeyValueConfig, ObjectStoreConfig, StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.peers import ServerProcess

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/howto/use-the-client.md"


def test_the_examples_of_the_howto_run(own_server: ServerProcess) -> None:
    """The last example names servers that do not exist, so it is only compiled."""
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) == 9
    shown = []
    for number, example in enumerate(examples):
        text = example.replace("connect()", f"connect({own_server.url!r})")
        text = text.replace("nats://127.0.0.1:4222", own_server.url)
        code = compile(text, f"example {number + 1} of {PAGE.name}", "exec")
        output = io.StringIO()
        if number < 8:
            with contextlib.redirect_stdout(output):
                exec(code, {"__name__": "__main__"})
        shown.append(output.getvalue().splitlines())
    assert shown[0][0] == "b'hello anna'"
    assert shown[0][1] == "news.sport b'1:0' stadium"
    assert shown[1][0] == "1000 stored"
    assert len(shown[1]) == 101
    assert shown[2] == ["1001"]
    assert shown[3] == ["285", "the subscription to 'news' has ended"]
    assert len(shown[4]) == 1102
    assert shown[5] == ["the last one is 1102"]
    assert shown[6][0].startswith("1102 ")
    assert shown[7][0].endswith(" ms")


def test_every_handle_has_an_example() -> None:
    """In the docstring of each class that both shells have; what it shows is Python."""
    for name in vars(pelton.sync)["__all__"]:
        for door, head in ((pelton, "async def"), (pelton.sync, "def")):
            if name == "ColumnReader" and door is pelton:  # asyncio has none
                continue
            each = f"{door.__name__}.{name}"
            _, found, example = (inspect.getdoc(getattr(door, name)) or "").partition("::\n\n")
            assert found, f"{each} has no example"
            margin = re.match(" *", example)[0]  # type: ignore[index]  # it always matches
            lines = itertools.takewhile(
                lambda line, margin=margin: not line or line.startswith(margin), example.split("\n")
            )
            code = textwrap.indent(textwrap.dedent("\n".join(lines)), "    ")
            compile(f"{head} example():\n{code}\n    pass\n", each, "exec")


def example_of(name: str, thing: object) -> str:
    """The example in a docstring, at the left margin."""
    _, found, example = (inspect.getdoc(thing) or "").partition("::\n\n")
    assert found, f"{name} has no example"
    margin = example[: len(example) - len(example.lstrip(" "))]
    return textwrap.dedent(
        "\n".join(
            itertools.takewhile(
                lambda line: not line or line.startswith(margin), example.split("\n")
            )
        )
    )


@pytest.fixture(scope="module")
def world() -> Iterator[dict[str, Any]]:
    """What the examples of values use: a client and some of what it can have."""
    with pelton.testing.broker(port=0) as broker, broker.connect_sync(timeout=30) as nc:
        js = nc.jetstream()
        for name, more in (("ORDERS", {}), ("VOTES", {"allow_msg_counter": True})):
            subjects = [f"{name.lower()}.>"]
            js.create_stream(StreamConfig(name=name, subjects=subjects, allow_direct=True, **more))
        plans = StreamConfig(name="PLANS", subjects=["plans.>", "due.>"], allow_msg_schedules=True)
        js.create_stream(plans)
        for _ in range(9):
            js.publish("orders.new", b"42 bolts")
        news = nc.subscribe("news")
        nc.publish("news", headers={"Kind": ["a", "b"]})
        message = news.next(timeout=30)
        bucket = js.create_key_value(KeyValueConfig(bucket="settings"))
        store = js.create_object_store(ObjectStoreConfig(bucket="reports"))
        names = {name: getattr(pelton, name) for name in vars(pelton)["__all__"]}
        names |= {"pelton": pelton, "UTC": UTC, "datetime": datetime, "timedelta": timedelta}
        names |= {"LocalServer": pelton.testing.LocalServer, "url": broker.url}
        yield {**names, "nc": nc, "js": js, "bucket": bucket, "store": store, "message": message}


def values() -> Iterator[tuple[str, object]]:
    """Public classes and functions that no shell has of its own."""
    both = set(vars(pelton)["__all__"]) & set(vars(pelton.sync)["__all__"])
    for module in (pelton, pelton.sync, pelton.testing, pelton.embedded):
        for name in vars(module)["__all__"]:
            thing = getattr(module, name)
            shells = name in both and inspect.isclass(thing)
            failure = inspect.isclass(thing) and issubclass(thing, BaseException)
            if (inspect.isclass(thing) or inspect.isfunction(thing)) and not (shells or failure):
                yield f"{module.__name__}.{name}", thing


@pytest.mark.parametrize(
    ("name", "thing"), list(values()), ids=lambda each: each if isinstance(each, str) else "-"
)
def test_the_example_of_each_value_runs(name: str, thing: object, world: dict[str, Any]) -> None:
    """Those of asyncio are compiled only."""
    code = example_of(name, thing)
    if "await " in code or "async " in code:
        compile(f"async def example():\n{textwrap.indent(code, '    ')}\n", name, "exec")
        return
    if name.startswith("pelton.sync."):
        world = world | {each: getattr(pelton.sync, each) for each in vars(pelton.sync)["__all__"]}
    world["js"].create_consumer("ORDERS", ConsumerConfig(durable_name="packing"))
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(code, name, "exec"), dict(world))
    world["js"].delete_consumer("ORDERS", "packing")
