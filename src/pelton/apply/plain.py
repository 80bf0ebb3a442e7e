"""The API's own form, in JSON, YAML or TOML: one configuration, what ``info --json`` prints, or sections.

::

    {"name": "ORDERS", "subjects": ["orders.>"]}                    a stream
    {"config": {...}, "state": {...}}                               what `stream info --json` prints, backup.json
    {"stream_name": "ORDERS", "config": {...}}                      a consumer, also from `consumer info --json`
    {"stream_name": "ORDERS", "durable_name": "packing", ...}       a consumer
    {"streams": {"ORDERS": {...}}, "consumers": {"ORDERS": {"packing": {...}}}, "kv": {...}, "objects": {...},
     "entries": {"SETTINGS": {"colour": "blue", "limits": {"rate": 5}}}}
    {"streams": [{"name": "ORDERS", ...}], "consumers": [{"stream_name": "ORDERS", "name": "packing", ...}]}
    [..., ...]                                                      several of these
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pelton.api import ConsumerConfig, StreamConfig
from pelton.apply.kubernetes import is_manifest, read_manifest
from pelton.apply.model import Node
from pelton.apply.values import fields_of, shown, unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.apply.assembling import Assembly

SECTIONS = ("streams", "consumers", "kv", "entries", "objects")
_TERRAFORM = ("terraform_version", "format_version", "root_module", "planned_values")
"""Keys of what Terraform writes: a state, also as JSON, or a plan."""
_ONLY_CONSUMER = (fields_of(ConsumerConfig) - fields_of(StreamConfig)) | {"stream_name"}


def read_plain(assembly: Assembly, node: Node) -> None:
    """Add the declarations of a document."""
    if isinstance(node.value, list):
        for each in node.value:
            read_plain(assembly, each)
    elif not isinstance(node.value, dict):
        text = f"expected a configuration in braces, got {shown(node.value)}"
        assembly.declared.wrong(node.place, text)
    elif node.value.keys() & set(_TERRAFORM):
        text = "this is a state or a plan of Terraform; give its .tf files instead"
        assembly.declared.wrong(node.place, text)
    elif is_manifest(node):
        read_manifest(assembly, node)
    elif node.value.keys() & set(SECTIONS):
        _sections(assembly, node.value)
    elif "config" in node.value:
        _info(assembly, node, node.value)
    elif node.value.keys() & _ONLY_CONSUMER:
        fields = {name: each for name, each in node.value.items() if name != "stream_name"}
        inner = Node(fields, node.place, node.key)
        assembly.consumer(inner, node.value.get("stream_name"))
    else:
        assembly.stream(_bare(node))


def _bare(node: Node) -> Node:
    """The configuration without what belongs to requests."""
    assert isinstance(node.value, dict)
    fields = {name: each for name, each in node.value.items() if name != "pedantic"}
    return Node(fields, node.place, node.key)


def _info(assembly: Assembly, node: Node, fields: dict[str, Node]) -> None:
    config = fields["config"]
    inner = Node(config.value, config.place, node.key)
    if "stream_name" in fields:
        if isinstance(config.value, dict) and "name" in fields:
            both = {"name": fields["name"], **config.value}
            inner = Node(both, config.place, node.key)
        assembly.consumer(inner, fields["stream_name"])
    else:
        assembly.stream(inner)


def _sections(assembly: Assembly, fields: dict[str, Node]) -> None:
    for section, node in fields.items():
        if section not in SECTIONS:
            assembly.declared.wrong(node.at, unknown(section, SECTIONS))
        elif section == "streams":
            for name, each in _entries(assembly, node, "name"):
                assembly.stream(_with(each, "name", name))
        elif section == "consumers" and isinstance(node.value, list):
            for each in node.value:
                _listed_consumer(assembly, each)
        elif section == "consumers":
            for stream, group in _entries(assembly, node, "name", groups=True):
                for name, each in _entries(assembly, group, "name"):
                    owner = Node(stream, group.at)
                    assembly.consumer(_durable(_with(each, "name", name)), owner)
        elif section == "entries":
            for bucket, group in _entries(assembly, node, "bucket"):
                assert isinstance(group.value, dict)
                for key, each in group.value.items():
                    assembly.entry(Node(bucket, group.at), Node(key, each.at), each)
        elif section == "kv":
            for name, each in _entries(assembly, node, "bucket"):
                assembly.bucket(_with(each, "bucket", name))
        else:
            for name, each in _entries(assembly, node, "bucket"):
                assembly.object_store(_with(each, "bucket", name))


def _listed_consumer(assembly: Assembly, node: Node) -> None:
    """A consumer of a list, which names its stream itself."""
    if not isinstance(node.value, dict):
        text = f"expected a consumer in braces, got {shown(node.value)}"
        assembly.declared.wrong(node.at, text)
        return
    fields = {name: each for name, each in node.value.items() if name != "stream_name"}
    inner = Node(fields, node.place, node.key)
    assembly.consumer(_durable(inner) if "name" in fields else inner, node.value.get("stream_name"))


def _durable(node: Node) -> Node:
    """A consumer of a section is durable, as in the server's configuration, unless it has a lifetime."""
    assert isinstance(node.value, dict)
    if node.value.keys() & {"durable_name", "inactive_threshold"}:
        return node
    return Node({**node.value, "durable_name": node.value["name"]}, node.place, node.key)


def _with(node: Node, key: str, name: str) -> Node:
    """The map with its own name; a name that it has already stays."""
    if not isinstance(node.value, dict) or key in node.value:
        return node
    return Node({key: Node(name, node.at), **node.value}, node.place, node.key)


def _entries(
    assembly: Assembly, node: Node, key: str, groups: bool = False
) -> Iterator[tuple[str, Node]]:
    """The named maps of a section, which may be a list of maps with names."""
    if isinstance(node.value, list):
        for each in node.value:
            named = each.value.get(key) if isinstance(each.value, dict) else None
            if named is None or not isinstance(named.value, str):
                assembly.declared.wrong(each.at, f"an entry of a list needs {key}")
            else:
                yield named.value, each
    elif isinstance(node.value, dict):
        for name, each in node.value.items():
            fits = isinstance(each.value, dict) or (groups and isinstance(each.value, list))
            if fits:
                yield name, each
            else:
                text = f"{name}: expected a map, got {shown(each.value)}"
                assembly.declared.wrong(each.at, text)
    else:
        assembly.declared.wrong(node.at, f"expected a map of names, got {shown(node.value)}")
