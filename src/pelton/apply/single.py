"""One configuration of a stream or consumer out of a text: what ``--config`` of a command names, or an editor saves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pelton.api import encode
from pelton.apply.documents import read_toml, read_yaml
from pelton.apply.jsonc import read_json
from pelton.apply.kubernetes import is_manifest
from pelton.apply.model import ConfigurationError, Declared, Node, Place, fault
from pelton.apply.values import structured

if TYPE_CHECKING:
    import msgspec

_BESIDES = frozenset({"pedantic", "stream_name", "action", "template_owner"})
"""Fields of requests, and of infos of 2020; not of configurations."""


def stream_in(text: str, file: str) -> str:
    """The stream of a consumer that a text names next to its configuration, or ""; ConfigurationError."""
    fields = _document(text, file).value
    named = fields.get("stream_name") if isinstance(fields, dict) else None
    return named.value if named is not None and isinstance(named.value, str) else ""


def keys_in(text: str, file: str) -> set[str]:
    """The keys of the configuration in a text; ConfigurationError."""
    fields = _configuration(_document(text, file)).value
    assert isinstance(fields, dict)
    return set(fields)


def read_fields(text: str, file: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields that a text gives, as the API has them; ConfigurationError with every mistake and its place.

    The text is a configuration, or what ``info --json`` prints: JSON, which may have comments and trailing commas,
    or YAML or TOML, as the file's name says.
    """
    node = _configuration(_document(text, file))
    assert isinstance(node.value, dict)
    given = {name: each for name, each in node.value.items() if name not in _BESIDES}
    declared = Declared()
    message = structured(declared, Node(given, node.place), kind)
    if declared.problems:
        raise ConfigurationError(declared.problems)
    written = json.loads(encode(message))
    return {
        name: written.get(name, getattr(message, name))
        for name, each in given.items()
        if each.value is not None
    }


def _document(text: str, file: str) -> Node:
    name = file.lower()
    reader = read_yaml if name.endswith((".yaml", ".yml")) else read_json
    documents = (read_toml if name.endswith(".toml") else reader)(text, file)
    if len(documents) != 1:
        what = "this is empty" if not documents else "there is more than one configuration here"
        raise fault(documents[1].place if documents else Place(file), what)
    return documents[0]


def _configuration(document: Node) -> Node:
    """The configuration itself, without the infos around it."""
    fields = document.value
    if not isinstance(fields, dict):
        raise fault(document.place, "expected a configuration in braces")
    if is_manifest(document):
        raise fault(document.place, "this is a manifest for Kubernetes; pelton apply reads it")
    inner = fields.get("config")
    return inner if inner is not None and isinstance(inner.value, dict) else document
