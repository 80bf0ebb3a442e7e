"""Payloads in a form that people read: JSON, MessagePack, CBOR, Protobuf, or what a command prints.

``DECODERS`` is the registry: a name and a function that makes a ``Decode`` of the options. A package
joins it with ``register``. A payload that cannot be decoded is printed as it is, with the reason.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from pelton.cli.inputs import read_input
from pelton.cli.output import payload, readable

if TYPE_CHECKING:
    from collections.abc import Mapping

F = TypeVar("F", bound=Callable[..., object])
Decode: TypeAlias = "Callable[[str, bytes], object]"
"""From subject and payload to what JSON can hold; ValueError for a payload of another form."""


class Decoder:
    """How a command prints payloads."""

    def __init__(self, decode: Decode | None = None, translate: str = "") -> None:
        """Neither: as they are. ``translate``: a shell command that reads one and prints another."""
        self._decode = decode
        self._translate = translate

    def data(self, subject: str, data: bytes) -> dict[str, Any]:
        """The members of a JSON object: "value" if it is decoded, else "data" or "data_base64"."""
        if self._decode is None:
            return payload(self.raw(subject, data))
        try:
            return {"value": self._decode(subject, data)}
        except ValueError as problem:
            return {**payload(data), "not_decoded": str(problem)}

    def text(self, subject: str, data: bytes) -> str:
        """The payload for people."""
        if self._decode is None:
            return readable(self.raw(subject, data))
        try:
            return _dumps(self._decode(subject, data), indent=2)
        except ValueError as problem:
            return f"{readable(data)}\n(not decoded: {problem})"

    def raw(self, subject: str, data: bytes) -> bytes:
        """The payload for pipes."""
        if self._translate:
            return _translated(self._translate, data)
        if self._decode is None:
            return data
        try:
            return _dumps(self._decode(subject, data), indent=None).encode()
        except ValueError:
            return data


def _dumps(value: object, indent: int | None) -> str:
    return json.dumps(value, indent=indent, ensure_ascii=False)


def _translated(command: str, data: bytes) -> bytes:
    done = subprocess.run(command, shell=True, input=data, capture_output=True, check=False)
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise click.ClickException(f"{command} ended with {done.returncode}: {text}")
    return done.stdout


# -- the registry ----------------------------------------------------------------------------------

Make: TypeAlias = "Callable[[Mapping[str, Any]], Decode]"
DECODERS: dict[str, Make] = {}


def register(name: str, make: Make) -> None:
    """Let ``--decode`` know a form; ``make`` gets the options of the command line."""
    DECODERS[name] = make


def plain(value: object) -> object:
    """The value with what JSON cannot hold as text: bytes in base64, other keys and types as text."""
    import base64

    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {
            key if isinstance(key, str) else str(plain(key)): plain(each)
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    whole = value is None or isinstance(value, bool | int | str)
    return value if whole or (isinstance(value, float) and value - value == 0) else str(value)


def _json(options: Mapping[str, Any]) -> Decode:
    def decode(subject: str, data: bytes) -> object:
        try:
            return json.loads(data)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None

    return decode


def _msgpack(options: Mapping[str, Any]) -> Decode:
    import msgspec

    def decode(subject: str, data: bytes) -> object:
        try:
            return plain(msgspec.msgpack.decode(data, strict=False))
        except (msgspec.DecodeError, RecursionError) as problem:
            raise ValueError(str(problem)) from None

    return decode


def _cbor(options: Mapping[str, Any]) -> Decode:
    try:
        import cbor2
    except ImportError:
        raise click.ClickException("--decode cbor needs cbor2: pip install cbor2") from None

    def decode(subject: str, data: bytes) -> object:
        try:
            return plain(cbor2.loads(data))
        except (cbor2.CBORDecodeError, RecursionError, OverflowError) as problem:
            raise ValueError(str(problem)) from None

    return decode


def _protobuf(options: Mapping[str, Any]) -> Decode:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message
        from google.protobuf.message_factory import GetMessageClass
    except ImportError:
        text = "--decode protobuf needs protobuf: pip install protobuf"
        raise click.ClickException(text) from None
    file, name = options["descriptor"], options["message"]
    if file is None or name is None:
        text = "--decode protobuf needs --descriptor and --message"
        raise click.UsageError(
            f"{text}; protoc --descriptor_set_out FILE --include_imports makes one"
        )
    try:
        found = descriptor_pb2.FileDescriptorSet.FromString(read_input(file))
        pool = descriptor_pool.DescriptorPool()
        for each in found.file:
            pool.Add(each)
        kind = GetMessageClass(pool.FindMessageTypeByName(name))
    except message.DecodeError:
        raise click.UsageError(f"{file} is no descriptor set") from None
    except KeyError:
        raise click.UsageError(f"{file} has no message {name}") from None
    except TypeError as problem:
        raise click.UsageError(f"{file}: {problem}") from None

    def decode(subject: str, data: bytes) -> object:
        try:
            read = kind.FromString(data)
            return json_format.MessageToDict(read, preserving_proto_field_name=True)
        except message.DecodeError as problem:
            raise ValueError(str(problem)) from None

    return decode


for _name, _make in (
    ("json", _json),
    ("msgpack", _msgpack),
    ("cbor", _cbor),
    ("protobuf", _protobuf),
):
    register(_name, _make)


# -- the options -----------------------------------------------------------------------------------

_NAMES = ("decode", "descriptor", "message", "translate")


def decoder_of(options: Mapping[str, Any]) -> Decoder:
    """The decoder that the options ask for; UsageError."""
    name, translate = options["decode"], options["translate"] or ""
    if name is None:
        if options["descriptor"] is not None or options["message"] is not None:
            raise click.UsageError("--descriptor and --message go with --decode protobuf")
        return Decoder(translate=translate)
    if translate:
        raise click.UsageError("--decode and --translate exclude each other")
    if name not in DECODERS:
        raise click.UsageError(f'--decode knows {", ".join(DECODERS)}, not "{name}"')
    return Decoder(DECODERS[name](options))


def decoded(function: F) -> F:
    """The options that say how payloads are printed, as one argument ``decoder``."""
    from functools import wraps

    @wraps(function)
    def with_decoder(*arguments: Any, **given: Any) -> object:
        options = {name: given.pop(name) for name in _NAMES}
        return function(*arguments, decoder=decoder_of(options), **given)

    options = [
        click.option(
            "--decode", metavar="FORM", help="Payloads are json, msgpack, cbor, protobuf."
        ),
        click.option(
            "--descriptor",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Descriptor set of the Protobuf messages.",
        ),
        click.option("--message", help="Full name of the Protobuf message."),
        click.option("--translate", metavar="CMD", help="Print what this makes of each payload."),
    ]
    made: Any = with_decoder
    for option in reversed(options):
        made = option(made)
    return made  # type: ignore[no-any-return]  # the function with options
