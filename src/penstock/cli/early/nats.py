"""`nats` of March 2020: its `req`, and its commands for streams and consumers with their pages.

Streams and consumers are made with today's API, so that clients of today use them. Every other
command is that of `penstock`, whose verbs and flags are those of the tool of today.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.api.codec import JsonError, decode_request, encode
from penstock.api.dialects.configurations import DialectError, OldConsumer, consumer_of
from penstock.cli.early.asking import Failed, ask, connect, receive
from penstock.cli.early.jsm import age_of, subjects_of
from penstock.cli.early.pages import consumer_page, differences, stream_page
from penstock.cli.failures import failure_of
from penstock.client.base.models import ConsumerConfig, StreamConfig
from penstock.core.base.quoting import shown
from penstock.errors import ApiError, NoResponders, PenstockError, Timeout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.client import BlockingClient

_STREAM = ("stream", "str", "st", "ms", "s")
_CONSUMER = ("consumer", "con", "obs", "c")
_SWITCHES = {
    "-f": "force",
    "--force": "force",
    "-j": "json",
    "--json": "json",
    "--no-ack": "no_ack",
}
# flag of `stream add` -> its prompt and its default; those with a prompt are asked for
_PROMPTS = {
    "subjects": ("Subjects to consume", ""),
    "storage": ("Storage backend", "file"),
    "retention": ("Retention Policy", "Limits"),
    "max-msgs": ("Message count limit", "-1"),
    "max-bytes": ("Message size limit", "-1"),
    "max-age": ("Maximum message age limit", "-1"),
    "max-msg-size": ("Maximum individual message size", "-1"),
}
_NUMBERS = ("max-msgs", "max-bytes", "max-msg-size", "max-consumers")
_OLD_FIELDS = {"delivery_subject", "deliver_all", "deliver_last", "start_time", "stream_seq"}


def main(arguments: Sequence[str]) -> int:
    """Run `nats`; the exit status: 0 done, 1 not done, 130 interrupted."""
    given = list(arguments)
    try:
        server, creds, words = _leading(given)
        run = _own(words)
        if run is None:
            from penstock.cli.__main__ import main as penstock

            return penstock(given)
        with connect(server, creds) as client:
            status: int = run(client, *_parsed(words))
            return status
    except KeyboardInterrupt:
        return 130
    except (Timeout, NoResponders):
        return _error("nats: timeout, try --help")
    except ApiError as error:
        return _error(error.description)
    except DialectError as problem:
        return _error(str(problem))
    except (PenstockError, OSError, ValueError) as problem:
        return _error(failure_of(problem).message)


def _error(text: str) -> int:
    print(shown(f"nats: error: {text}"), file=sys.stderr)
    return 1


def _leading(arguments: list[str]) -> tuple[str, str, list[str]]:
    """Server and credentials before the command, and the rest."""
    import os

    found = {
        "--server": os.environ.get("NATS_URL", ""),
        "--creds": os.environ.get("NATS_CREDS", ""),
    }
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        name, equals, value = arguments[at].partition("=")
        name = {"-s": "--server"}.get(name, name)
        if name not in found:
            return "", "", []
        at += 1 if equals else 2
        found[name] = value if equals else "".join(arguments[at - 1 : at])
    return found["--server"], found["--creds"], arguments[at:]


def _own(words: list[str]) -> Any:
    """The function that runs the command here; None: it is a command of `penstock`."""
    if not words or "-h" in words or "--help" in words:
        return None
    if words[0] in ("req", "request"):
        return _request
    verb = words[1] if len(words) > 1 else ""
    if words[0] in _STREAM:
        return {
            **dict.fromkeys(("add", "create", "new"), _add_stream),
            **dict.fromkeys(("info", "nfo"), _stream_info),
            **dict.fromkeys(("rm", "delete", "del"), _remove_stream),
            "edit": _edit_stream,
        }.get(verb)
    if words[0] in _CONSUMER and any(each.startswith("--config") for each in words):
        return {**dict.fromkeys(("add", "create", "new"), _add_consumer)}.get(verb)
    if words[0] in _CONSUMER:
        return {
            **dict.fromkeys(("info", "nfo"), _consumer_info),
            **dict.fromkeys(("rm", "delete", "del"), _remove_consumer),
        }.get(verb)
    return None


def _parsed(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """The names behind noun and verb, and the flags."""
    names: list[str] = []
    flags: dict[str, str] = {}
    rest = iter(words[1:] if words[0] in ("req", "request") else words[2:])
    for each in rest:
        name, equals, value = each.partition("=")
        if each in _SWITCHES:
            flags[_SWITCHES[each]] = "1"
        elif each.startswith("--"):
            found = value if equals else next(rest, None)
            if found is None:
                raise Failed(f"expected argument for flag '{each}', try --help")
            flags[name[2:]] = found
        else:
            names.append(each)
    return names, flags


def _stamp(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def _request(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    if not names:
        raise Failed("required argument 'subject' not provided, try --help")
    if len(names) > 1:
        body = names[1].encode("utf-8", "surrogateescape")
    else:
        _stamp("Reading payload from STDIN")
        body = sys.stdin.buffer.read()
    _stamp(f"Sending request on [{shown(names[0])}]")
    inbox = client.new_inbox()
    answer = receive(client, names[0], body, 5.0, inbox)
    _stamp(f"Received on [{shown(answer.subject)}]: '{answer.data.decode('utf-8', 'replace')}'")
    return 0


# -- streams ---------------------------------------------------------------------------------------


def _name(names: list[str], what: str) -> str:
    if not names:
        raise Failed(f"required argument '{what}' not provided, try --help")
    return names[0]


def _pick(client: BlockingClient, names: list[str]) -> Any:
    """The info of the stream that is named."""
    name = _name(names, "stream")
    try:
        return client.jetstream().stream_info(name)
    except ApiError as error:
        why = error.description if client.jetstream().stream_names() else "no Streams are defined"
        raise Failed(f"could not pick a Stream to operate on: {why}") from None


def _file(path: str) -> dict[str, Any]:
    """The object of a file, which may have comments."""
    from penstock.apply.jsonc import read_json
    from penstock.apply.model import Node

    def plain(value: Any) -> Any:
        if isinstance(value, Node):
            return plain(value.value)
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, list) else value

    documents = read_json(Path(path).read_text(encoding="utf-8-sig"), path)
    found = plain(documents[0]) if len(documents) == 1 else None
    if not isinstance(found, dict):
        raise Failed(f"{path}: expected one JSON object")
    return found


def _stream_fields(path: str) -> dict[str, Any]:
    fields = _file(path)
    fields = fields.get("config", fields) if isinstance(fields.get("config"), dict) else fields
    if isinstance(fields.get("retention"), str):
        fields["retention"] = fields["retention"].lower()
    if isinstance(fields.get("max_age"), int):
        fields["max_age"] = max(fields["max_age"], 0)
    fields.pop("template_owner", None)
    return fields


def _config(kind: Any, fields: dict[str, Any]) -> Any:
    try:
        return decode_request(kind, json.dumps(fields).encode())
    except JsonError as error:
        raise Failed(str(error)) from None


def _asked(flag: str) -> str:
    question, default = _PROMPTS[flag]
    if not sys.stdin.isatty():
        raise Failed(f"without a terminal --{flag} is needed, try --help")
    suffix = f" ({default})" if default else ""
    try:
        return input(f"? {question}{suffix} ").strip() or default
    except EOFError:
        raise Failed(f"no answer to {question!r}") from None


def _given(flags: dict[str, str]) -> dict[str, Any]:
    """The configuration of flags, and of prompts for those that are not given."""
    said = {flag: flags[flag] if flag in flags else _asked(flag) for flag in _PROMPTS}
    fields: dict[str, Any] = {"num_replicas": 1, "no_ack": "no_ack" in flags}
    for flag in _NUMBERS:
        text = said.get(flag, flags.get(flag, "-1"))
        try:
            fields[flag.replace("-", "_")] = int(text)
        except ValueError:
            raise Failed(f"--{flag} {text}: expected a number") from None
    fields["max_age"] = age_of(said["max-age"])
    fields["subjects"] = subjects_of(said["subjects"])
    fields["storage"] = said["storage"].lower()
    fields["retention"] = said["retention"].lower()
    return fields


def _add_stream(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    fields = _stream_fields(flags["config"]) if "config" in flags else _given(flags)
    if names:
        fields["name"] = names[0]
    if not fields.get("name"):
        raise Failed("required argument 'stream' not provided, try --help")
    info = client.jetstream().create_stream(_config(StreamConfig, fields))
    print(f"Stream {info.config.name} was created\n")
    print(stream_page(info))
    return 0


def _stream_info(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    info = _pick(client, names)
    if "json" in flags:
        print(ask(client, f"$JS.STREAM.{info.config.name}.INFO").decode())
    else:
        print(stream_page(info))
    return 0


def _sure(question: str, flags: dict[str, str]) -> bool:
    if "force" in flags:
        return True
    if not sys.stdin.isatty():
        raise Failed(f"{question}: without a terminal --force is needed")
    try:
        yes = input(f"? {question} (y/N) ").strip().lower() in ("y", "yes")
    except EOFError:
        yes = False
    if sys.stdout.isatty():
        print(f"\x1b[1A\x1b[2K? {question} {'Yes' if yes else 'No'}", flush=True)
    return yes


def _remove_stream(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    name = _pick(client, names).config.name
    if _sure(f"Really delete Stream {name}", flags):
        client.jetstream().delete_stream(name)
    return 0


def _edit_stream(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    present = _pick(client, names).config
    if "config" not in flags:
        raise Failed("--config is needed, try --help")
    fields = _stream_fields(flags["config"])
    given = _config(StreamConfig, fields)
    known = [name for name in StreamConfig.__struct_fields__ if name in fields]
    wanted = replace(present, **{name: getattr(given, name) for name in known})
    found = differences(present, wanted)
    if not found:
        print("No difference in configuration")
        return 0
    print(f"Differences (-old +new):\n{found}")
    if not _sure(f"Really edit Stream {present.name}", flags):
        return 0
    info = client.jetstream().update_stream(wanted)
    print(f"Stream {info.config.name} was updated\n")
    print(stream_page(info))
    return 0


# -- consumers -------------------------------------------------------------------------------------


def _both(names: list[str]) -> tuple[str, str]:
    if len(names) < 2:
        raise Failed("required arguments 'stream' and 'consumer' not provided, try --help")
    return names[0], names[1]


def _consumer_info(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    stream, name = _both(names)
    if "json" in flags:
        answer = ask(client, f"$JS.STREAM.{stream}.CONSUMER.{name}.INFO")
        if answer.startswith(b"-ERR"):
            raise Failed(answer[5:].decode().strip("'"))
        print(answer.decode())
    else:
        print(consumer_page(client.jetstream().consumer_info(stream, name)))
    return 0


def _remove_consumer(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    stream, name = _both(names)
    client.jetstream().consumer_info(stream, name)
    if _sure(f"Really delete Consumer {stream} > {name}", flags):
        client.jetstream().delete_consumer(stream, name)
    return 0


def _add_consumer(client: BlockingClient, names: list[str], flags: dict[str, str]) -> int:
    """The file is a configuration, or what `info -j` prints, or a request of the API."""
    found = _file(flags["config"])
    stream = names[0] if names else found.get("stream_name", "")
    fields = found["config"] if isinstance(found.get("config"), dict) else found
    if not stream:
        raise Failed("required argument 'stream' not provided, try --help")
    if len(names) > 1:
        fields["durable_name"] = names[1]
    if _OLD_FIELDS & fields.keys():
        config = replace(consumer_of(_config(OldConsumer, fields)), metadata={})
        fields = json.loads(encode(config))
    wanted = _config(ConsumerConfig, fields)
    print(consumer_page(client.jetstream().create_consumer(stream, wanted)))
    return 0
