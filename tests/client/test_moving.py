"""The page for users of nats-py: what its tables name exists, and no call of nats-py is left out."""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import re
import types
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pytest

import pelton
from pelton.client.base.message import Headers
from pelton.client.base.models import Metadata
from pelton.client.protocol.options import ConnectOptions

nats = pytest.importorskip("nats")
for module in ("js.api", "js.errors", "js.kv", "js.object_store", "micro.request", "micro.service"):
    importlib.import_module(f"nats.{module}")

PAGE = Path(__file__).parents[2] / "docs/howto/move-from-nats-py.md"
CONTEXT = nats.js.JetStreamContext
THEIRS: dict[str, Any] = {
    "nats": nats,
    "micro": nats.micro,
    "nc": nats.aio.client.Client,
    "sub": nats.aio.subscription.Subscription,
    "msg": nats.aio.msg.Msg,
    "js": CONTEXT,
    "pull": CONTEXT.PullSubscription,
    "push": CONTEXT.PushSubscription,
    "kv": nats.js.kv.KeyValue,
    "entry": nats.js.kv.KeyValue.Entry,
    "watcher": nats.js.kv.KeyValue.KeyWatcher,
    "store": nats.js.object_store.ObjectStore,
    "service": nats.micro.service.Service,
    "group": nats.micro.service.Group,
    "request": nats.micro.request.Request,
    "msg.metadata": nats.aio.msg.Msg.Metadata,
}
OURS: dict[str, Any] = {
    "nc": pelton.Client,
    "subscription": pelton.Subscription,
    "message": pelton.Message,
    "message.metadata": Metadata,
    "message.headers": Headers,
    "js": pelton.JetStream,
    "publisher": pelton.Publisher,
    "consumer": pelton.Consumer,
    "messages": pelton.ConsumerMessages,
    "event": pelton.ConsumerEvent,
    "ordered": pelton.OrderedConsumer,
    "push": pelton.PushConsumer,
    "kv": pelton.KeyValue,
    "entry": pelton.KvEntry,
    "watch": pelton.KeyWatch,
    "store": pelton.ObjectStore,
    "service": pelton.Service,
    "group": pelton.ServiceGroup,
    "request": pelton.Request,
    "nc.server_info": pelton.ServerInfo,
    "ack": pelton.PubAck,
    "finder": pelton.ServiceClient,
}
# What stands for a reader's own: a handler, a configuration, a file.
ANY = {"handle", "config", "meta", "file", "future", "info", "nc"}
# Functions that pass keyword arguments on.
PASSED_ON: dict[str, Any] = {
    "nats.connect": nats.aio.client.Client.connect,
    "js.add_stream": nats.js.api.StreamConfig,
    "js.update_stream": nats.js.api.StreamConfig,
    "js.add_consumer": nats.js.api.ConsumerConfig,
    "js.create_key_value": nats.js.api.KeyValueConfig,
    "js.create_object_store": nats.js.api.ObjectStoreConfig,
    "nc.jetstream": CONTEXT,
    "nc.jsm": CONTEXT,
    "kv.keys": None,
    "kv.watchall": None,
    "micro.add_service": nats.micro.service.ServiceConfig,
    "service.add_endpoint": nats.micro.service.EndpointConfig,
    "service.add_group": nats.micro.service.GroupConfig,
    "group.add_endpoint": nats.micro.service.EndpointConfig,
    "group.add_group": nats.micro.service.GroupConfig,
    "js.create_stream": pelton.StreamConfig,
    "js.create_consumer": pelton.ConsumerConfig,
    "js.create_or_update_consumer": pelton.ConsumerConfig,
    "js.update_consumer": pelton.ConsumerConfig,
    "js.create_or_update_key_value": pelton.KeyValueConfig,
    "connect": ConnectOptions,
    "sync.connect": ConnectOptions,
}


class Named(NamedTuple):
    """A code span in a cell of a table."""

    line: int
    ours: bool
    text: str


def spans(page: Path, name: str) -> list[Named]:
    """The code spans of a page's tables, whose first column is that of the client ``name``."""
    found = []
    inside = False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if not line.startswith("|"):
            inside = False
        elif line.startswith(f"| {name} |"):
            inside = True
        elif inside and not line.startswith("|---"):
            _, *cells, _ = re.split(r"(?<!\\)\|", line)
            assert len(cells) == 2, f"{page.name}:{number}: {len(cells)} cells"
            for ours, cell in zip((False, True), cells, strict=True):
                found += [Named(number, ours, text) for text in re.findall(r"`([^`]+)`", cell)]
    return found


SPANS = spans(PAGE, "nats-py")


@functools.cache
def names_of(thing: Any) -> set[str]:
    """The attributes of a module, or of an object of a class."""
    found = set(dir(thing))
    if isinstance(thing, type):
        for base in thing.__mro__[:-1]:
            found |= set(vars(base).get("__annotations__", {}))
            try:
                found |= set(re.findall(r"\bself\.(\w+)\b[^=\n(]*=[^=]", inspect.getsource(base)))
            except (OSError, TypeError):  # a class that is compiled or made at run time
                continue
    return found


def _fields(of: Any) -> set[str]:
    if of is None:
        return set()
    return set(get_type_hints(of) if of is ConnectOptions else inspect.signature(of).parameters)


def accepts(function: Any, call: ast.Call, name: str) -> None:
    """AssertionError unless a call with such arguments fits the function."""
    values = [object() for _ in call.args]
    keywords = [keyword.arg for keyword in call.keywords]
    assert None not in keywords, name
    signature = inspect.signature(function)
    if any(each.kind == each.VAR_KEYWORD for each in signature.parameters.values()):
        more = PASSED_ON[name]
        fields = _fields(more)
        unknown = set(keywords) - fields - set(signature.parameters)
        assert not unknown, f"{name}() has no {unknown}"
        return
    bound = [object(), *values] if "self" in signature.parameters else values
    signature.bind(*bound, **{word: object() for word in keywords if word})


def resolve(node: ast.AST, ours: bool) -> Any:
    """What a name of the page is; AssertionError when there is none."""
    roots = OURS if ours else THEIRS
    text = ast.unparse(node)
    if text in roots:
        return roots[text]
    if isinstance(node, ast.Name):
        if ours and text in vars(pelton)["__all__"]:
            return getattr(pelton, text)
        assert text in ANY or hasattr(builtins, text), f"nobody knows {text}"
        return None
    assert isinstance(node, ast.Attribute)
    if text == "ssl.SSLContext":
        return None
    owner = resolve(node.value, ours)
    assert owner is not None, text
    assert node.attr in names_of(owner), f"{ast.unparse(node.value)} has no {node.attr}"
    return getattr(owner, node.attr, None)


def check(span: Named) -> None:
    """AssertionError unless everything in the span exists."""
    if re.fullmatch(r"\w+=", span.text):
        connect = pelton.connect if span.ours else nats.connect
        call = ast.parse(f"connect({span.text}1)", mode="eval").body
        assert isinstance(call, ast.Call)
        accepts(connect, call, "connect" if span.ours else "nats.connect")
        return
    tree = ast.parse(span.text, mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            found = resolve(node.func, span.ours)
            accepts(found, node, name)
        elif isinstance(node, ast.Attribute):
            resolve(node, span.ours)
    if isinstance(tree, ast.Name):
        resolve(tree, span.ours)


# Words of the tables that are no calls: headers, modes, events, keywords of Python and of arguments.
WORDS = re.compile(
    r"Nats-[\w-]+|async (for|with)|await|None|servers_discovered|connected|on_status|data|info"
    r"|erase|add_service|max_msgs|fetch|code|err_code|description"
)


def test_what_a_table_names_exists() -> None:
    spans = [span for span in SPANS if not WORDS.fullmatch(span.text)]
    assert len(spans) > 400
    missing = []
    for span in spans:
        try:
            check(span)
        except (AssertionError, TypeError, SyntaxError) as error:
            missing.append(f"line {span.line}: {span.text}: {error}")
    assert missing == []


@pytest.mark.parametrize(
    "wrong", ["nc.publsh('s')", "nc.publish('s', hdrs={})", "nmae=", "kv.get()", "Tmeout"]
)
@pytest.mark.parametrize("ours", [False, True])
def test_a_wrong_name_is_found(wrong: str, ours: bool) -> None:
    with pytest.raises((AssertionError, TypeError)):
        check(Named(0, ours, wrong))


def public(thing: Any) -> set[str]:
    """Methods and properties, without constants and inner classes."""
    return {
        name
        for name in dir(thing)
        if not name.startswith("_")
        and not name.isupper()
        and not (isinstance(getattr(thing, name), type) and not name.islower())
        and not isinstance(inspect.getattr_static(thing, name), types.MemberDescriptorType)
    }


of_this_version = pytest.mark.skipif(
    not version("nats-py").startswith("2.16."), reason="the page is about nats-py 2.16"
)


@of_this_version
@pytest.mark.parametrize(
    "name", [name for name in THEIRS if name not in ("nats", "micro", "entry", "msg.metadata")]
)
def test_no_call_of_nats_py_is_left_out(name: str) -> None:
    theirs = "\n".join(span.text for span in SPANS if not span.ours)
    # A push subscription is a subscription.
    said = set(re.findall(rf"\b{name}\.(\w+)", theirs))
    if name == "push":
        said |= set(re.findall(r"\bsub\.(\w+)", theirs))
    assert public(THEIRS[name]) - said == set()


@of_this_version
def test_no_option_of_nats_py_is_left_out() -> None:
    theirs = "\n".join(span.text for span in SPANS if not span.ours)
    options = set(inspect.signature(nats.aio.client.Client.connect).parameters) - {"self"}
    assert options - set(re.findall(r"\b(\w+)=", theirs)) == set()
