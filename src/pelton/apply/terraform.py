"""Terraform files for the provider ``jetstream``: streams, consumers, key-value buckets, entries, object stores.

The files of a folder are one module. Its variables have their defaults, or values that the caller gives. Defaults
of attributes are the provider's: ``allow_direct`` is true, a consumer has ``max_ack_pending`` 20000.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from pelton.apply.hcl import Body, Evaluator, read_hcl
from pelton.apply.jsonc import read_json
from pelton.apply.model import ConfigurationError, Node, Place, fault
from pelton.apply.tables import Attribute, Table, plain, translate
from pelton.apply.values import plain_text, shown, unknown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pelton.apply.assembling import Assembly
    from pelton.apply.hcl import Block, Expression

_TRANSFORM: Table = {"source": Attribute("src"), "destination": Attribute("dest")}
_SOURCE: Table = {
    **plain("name", "filter_subject"),
    "start_seq": Attribute("opt_start_seq"),
    "start_time": Attribute("opt_start_time"),
    "subject_transform": Attribute("subject_transforms", within=_TRANSFORM),
    "external": Attribute("external", within=plain("api", "deliver"), single=True),
    "consumer": Attribute("consumer", within=plain("name", "deliver_subject"), single=True),
}
_PLACEMENT: Table = {
    "placement_cluster": Attribute("placement.cluster"),
    "placement_tags": Attribute("placement.tags"),
    "placement_preferred": Attribute("placement.preferred"),
}
STREAM: Table = {
    **plain("name", "description", "metadata", "subjects", "storage", "retention", "discard"),
    **plain("discard_new_per_subject", "max_msgs", "max_bytes", "max_msg_size", "compression"),
    **plain("max_msgs_per_subject", "max_consumers", "deny_delete", "deny_purge"),
    **plain("allow_rollup_hdrs", "mirror_direct", "allow_msg_ttl", "allow_msg_counter"),
    **plain("allow_atomic", "allow_msg_schedules", "first_seq", "persist_mode", "allow_batched"),
    "max_age": Attribute("max_age", "seconds"),
    "duplicate_window": Attribute("duplicate_window", "seconds"),
    "ack": Attribute("no_ack", "not", default=True),
    "replicas": Attribute("num_replicas"),
    "allow_direct": Attribute("allow_direct", default=True),
    **_PLACEMENT,
    "subject_transform": Attribute("subject_transform", within=_TRANSFORM, single=True),
    "mirror": Attribute("mirror", within=_SOURCE, single=True),
    "source": Attribute("sources", within=_SOURCE),
    "republish_source": Attribute("republish.src"),
    "republish_destination": Attribute("republish.dest"),
    "republish_headers_only": Attribute("republish.headers_only"),
    "max_ack_pending": Attribute("consumer_limits.max_ack_pending"),
    "inactive_threshold": Attribute("consumer_limits.inactive_threshold", "seconds"),
    "subject_delete_marker_ttl": Attribute("subject_delete_marker_ttl", "seconds"),
}
CONSUMER: Table = {
    **plain("durable_name", "description", "metadata", "filter_subject", "filter_subjects"),
    **plain("replay_policy", "flow_control", "max_waiting", "headers_only", "max_batch"),
    **plain("max_bytes", "priority_policy", "priority_groups"),
    "ack_policy": Attribute("ack_policy", default="explicit"),
    "delivery_subject": Attribute("deliver_subject"),
    "delivery_group": Attribute("deliver_group"),
    "ack_wait": Attribute("ack_wait", "seconds"),
    "max_delivery": Attribute("max_deliver"),
    "sample_freq": Attribute("sample_freq", "percent"),
    "ratelimit": Attribute("rate_limit_bps"),
    "max_ack_pending": Attribute("max_ack_pending", default=20_000),
    "heartbeat": Attribute("idle_heartbeat", "seconds"),
    "max_expires": Attribute("max_expires", "seconds"),
    "inactive_threshold": Attribute("inactive_threshold", "seconds"),
    "replicas": Attribute("num_replicas"),
    "memory": Attribute("mem_storage"),
    "backoff": Attribute("backoff", "seconds"),
    "priority_timeout": Attribute("priority_timeout", "seconds"),
}
KEY_VALUE: Table = {
    "name": Attribute("bucket"),
    **plain("description", "storage", "max_value_size", "replicas"),
    "history": Attribute("history", default=5),
    "ttl": Attribute("ttl", "seconds"),
    "max_bucket_size": Attribute("max_bytes"),
    **_PLACEMENT,
    "limit_marker_ttl": Attribute("limit_marker_ttl", "seconds"),
}
ENTRY: Table = plain("bucket", "key", "value")
OBJECT_STORE: Table = {
    "name": Attribute("bucket"),
    **plain("description", "storage", "replicas", "compression"),
    "ttl": Attribute("ttl", "seconds"),
    "max_bucket_size": Attribute("max_bytes"),
    **_PLACEMENT,
}
TABLES: Mapping[str, Table] = {
    "jetstream_stream": STREAM,
    "jetstream_consumer": CONSUMER,
    "jetstream_kv_bucket": KEY_VALUE,
    "jetstream_kv_entry": ENTRY,
    "jetstream_obj_bucket": OBJECT_STORE,
}
STARTS = {
    "deliver_all": "all",
    "deliver_last": "last",
    "deliver_new": "new",
    "deliver_last_per_subject": "last_per_subject",
    "stream_sequence": "by_start_sequence",
    "start_time": "by_start_time",
}
_PASSED_OVER = ("terraform", "output", "provider")
_BESIDES = ("depends_on", "provider", "lifecycle")
_STREAM_ID = "JETSTREAM_STREAM_"
_BUCKET_ID = "JETSTREAM_KV_"
IDS = {
    "jetstream_stream": (_STREAM_ID, "name"),
    "jetstream_kv_bucket": (_BUCKET_ID, "name"),
    "jetstream_obj_bucket": ("JETSTREAM_OBJ_", "name"),
}


class File(NamedTuple):
    """A file of a module."""

    name: str
    text: str


@dataclass
class _Resource:
    kind: str
    label: str
    body: Body
    file: str


def read_module(
    assembly: Assembly, files: Sequence[File], variables: Mapping[str, str] | None = None
) -> None:
    """Add the declarations of the files of a folder; ``variables`` replace the defaults of variables."""
    module = _Module(assembly, variables or {})
    for file in files:
        try:
            module.add(_json_body(file) if file.name.endswith(".json") else _hcl(file), file.name)
        except ConfigurationError as error:
            assembly.declared.problems += error.problems
    module.read()


def _hcl(file: File) -> Body:
    return read_hcl(file.text, file.name)


def _json_body(file: File) -> Body:
    """The blocks of a ``.tf.json`` file: maps of labels in maps of kinds."""
    from pelton.apply.hcl import Block

    body = Body(Place(file.name, 1, 1))
    for document in read_json(file.text, file.name):
        if not isinstance(document.value, dict):
            raise fault(document.place, f"expected a map, got {shown(document.value)}")
        for kind, node in document.value.items():
            if kind == "//":
                continue
            labels = {"resource": 2, "locals": 0, "terraform": 0}.get(kind, 1)
            for names, inner in _labelled(node, labels):
                fields = inner.value if isinstance(inner.value, dict) else {}
                made = Body(inner.at)
                made.attributes = {name: (each, each.at) for name, each in fields.items()}
                body.blocks.append(Block(kind, names, made, inner.at))
    return body


def _labelled(node: Node, count: int) -> list[tuple[list[str], Node]]:
    if isinstance(node.value, list):
        return [each for inner in node.value for each in _labelled(inner, count)]
    if not isinstance(node.value, dict):
        raise fault(node.at, f"expected a map, got {shown(node.value)}")
    if not count:
        return [([], node)]
    return [
        ([name, *names], found)
        for name, inner in node.value.items()
        if name != "//"
        for names, found in _labelled(inner, count - 1)
    ]


class _Module:
    def __init__(self, assembly: Assembly, variables: Mapping[str, str]) -> None:
        self.assembly, self.given = assembly, variables
        self.variables: dict[str, tuple[Body, str]] = {}
        self.locals: dict[str, tuple[Expression, str]] = {}
        self.resources: dict[tuple[str, str], _Resource] = {}
        self.under_way: list[str] = []

    def add(self, body: Body, file: str) -> None:
        declared = self.assembly.declared
        for name, (_, place) in body.attributes.items():
            declared.wrong(place, f'"{name}" does not belong outside of a block')
        for block in body.blocks:
            if block.kind == "variable" and len(block.labels) == 1:
                self.variables[block.labels[0]] = (block.body, file)
            elif block.kind == "locals":
                for name, (value, _) in block.body.attributes.items():
                    self.locals[name] = (value, file)
            elif block.kind == "resource" and len(block.labels) == 2:
                self.add_resource(block, file)
            elif block.kind == "provider":
                text = "the provider's servers are passed over; --server says where to connect"
                declared.warn(block.place, text)
            elif block.kind not in _PASSED_OVER:
                declared.wrong(block.place, f'blocks "{block.kind}" are not understood')

    def add_resource(self, block: Block, file: str) -> None:
        kind, label = block.labels
        if kind not in TABLES:
            hint = unknown(kind, TABLES).partition("; ")[2]
            text = f'resources "{kind}" are not understood; {hint}'
            self.assembly.declared.wrong(block.place, text)
        elif (kind, label) in self.resources:
            place = self.resources[kind, label].body.place
            text = f"{kind}.{label} is declared twice, also at {place}"
            self.assembly.declared.wrong(block.place, text)
        else:
            self.resources[kind, label] = _Resource(kind, label, block.body, file)

    def read(self) -> None:
        for resource in self.resources.values():
            try:
                self.read_resource(resource)
            except ConfigurationError as error:
                self.assembly.declared.problems += error.problems

    def read_resource(self, resource: _Resource) -> None:
        declared, assembly = self.assembly.declared, self.assembly
        node = self.body(resource.body, resource.file)
        given = node.value
        assert isinstance(given, dict)
        for name in ("count", "for_each", "dynamic", "provisioner"):
            if name in given:
                raise fault(given[name].at, f'"{name}" is not understood')
        table, prevent = TABLES[resource.kind], self.prevents(given)
        consumer = resource.kind == "jetstream_consumer"
        besides = (*_BESIDES, "stream_id", *STARTS) if consumer else _BESIDES
        fields = Node(translate(declared, node, table, besides), resource.body.place)
        if consumer:
            assert isinstance(fields.value, dict)
            self.start(fields.value, given, resource)
            stream = given.get("stream_id")
            if stream is not None and isinstance(stream.value, str):
                stream = replace(stream, value=stream.value.removeprefix(_STREAM_ID))
            assembly.consumer(fields, stream, prevent)
        elif resource.kind == "jetstream_stream":
            assembly.stream(fields, prevent)
        elif resource.kind == "jetstream_kv_bucket":
            assembly.bucket(fields, prevent)
        elif resource.kind == "jetstream_kv_entry":
            self.entry(fields, prevent)
        else:
            assembly.object_store(fields, prevent)

    def entry(self, fields: Node, prevent: bool) -> None:
        """A value of a key; ``bucket`` is the bucket's name or id."""
        given = fields.value
        assert isinstance(given, dict)
        for name in ENTRY:
            if name not in given:
                raise fault(fields.place, f"an entry needs {', '.join(ENTRY)}")
        bucket, value = given["bucket"], given["value"]
        if isinstance(bucket.value, str):
            bucket = replace(bucket, value=bucket.value.removeprefix(_BUCKET_ID))
        if not isinstance(value.value, str):
            try:
                value = replace(value, value=plain_text(value))
            except ValueError as problem:
                raise fault(value.at, f"value: {problem}") from None
        self.assembly.entry(bucket, given["key"], value, prevent)

    def start(self, fields: dict[str, Node], given: dict[str, Node], resource: _Resource) -> None:
        """Where a consumer begins: exactly one attribute says it."""
        chosen = [
            name
            for name in STARTS
            if name in given and given[name].value is not None and given[name].value is not False
        ]
        if len(chosen) != 1:
            text = f"a consumer needs exactly one of {', '.join(STARTS)}"
            self.assembly.declared.wrong(resource.body.place, text)
            return
        name = chosen[0]
        node = given[name]
        fields["deliver_policy"] = Node(STARTS[name], node.place, node.key)
        if name == "stream_sequence":
            fields["opt_start_seq"] = node
        elif name == "start_time":
            fields["opt_start_time"] = node

    def prevents(self, given: dict[str, Node]) -> bool:
        lifecycle = given.get("lifecycle")
        if lifecycle is None:
            return False
        blocks = lifecycle.value if isinstance(lifecycle.value, list) else [lifecycle]
        for block in blocks:
            assert isinstance(block, Node)
            if isinstance(block.value, dict) and "prevent_destroy" in block.value:
                return block.value["prevent_destroy"].value is True
        return False

    def body(self, body: Body, file: str) -> Node:
        """The attributes of a body, and its blocks as lists of maps."""
        found: dict[str, Node] = {}
        for name, (expression, place) in body.attributes.items():
            value = self.evaluator(file).value(expression)
            found[name] = Node(value.value, value.place, place)
        for block in body.blocks:
            inner = self.body(block.body, file)
            inner.key = block.place
            held = found.setdefault(block.kind, Node([], block.place, block.place))
            if not isinstance(held.value, list):
                raise fault(block.place, f'"{block.kind}" is given twice')
            held.value.append(inner)
        return Node(found, body.place)

    def evaluator(self, file: str) -> Evaluator:
        return Evaluator(file, self.resolve)

    def resolve(self, words: list[str], place: Place) -> tuple[Node, int]:
        """The value of a reference, and how many of its words that takes."""
        path = ".".join(words)
        if path in self.under_way:
            raise fault(place, f"{path} refers to itself")
        self.under_way.append(path)
        try:
            return self.resolved(words, place)
        finally:
            self.under_way.pop()

    def resolved(self, words: list[str], place: Place) -> tuple[Node, int]:
        root, rest = words[0], words[1:]
        if root == "var" and rest:
            return self.variable(rest[0], place), 2
        if root == "local" and rest:
            if rest[0] not in self.locals:
                raise fault(place, unknown(rest[0], self.locals).replace("key", "local"))
            expression, file = self.locals[rest[0]]
            return self.evaluator(file).value(expression), 2
        if root in TABLES and len(rest) > 1:
            resource = self.resources.get((root, rest[0]))
            if resource is None:
                raise fault(place, f"there is no {root}.{rest[0]}")
            return self.attribute(resource, rest[1], place), 3
        raise fault(place, f'the reference "{".".join(words)}" is not understood')

    def variable(self, name: str, place: Place) -> Node:
        if name not in self.variables:
            raise fault(place, unknown(name, self.variables).replace("key", "variable"))
        body, file = self.variables[name]
        if name in self.given:
            return Node(_given(self.given[name]), place)
        if "default" not in body.attributes:
            text = f'variable "{name}" has no default; give it with --var {name}=VALUE'
            raise fault(place, text)
        return self.evaluator(file).value(body.attributes["default"][0])

    def attribute(self, resource: _Resource, name: str, place: Place) -> Node:
        if name == "id" and resource.kind in IDS:
            prefix, source = IDS[resource.kind]
            value = self.attribute(resource, source, place)
            return Node(f"{prefix}{value.value}", place)
        if name not in resource.body.attributes:
            raise fault(place, f"{resource.kind}.{resource.label} does not say {name}")
        return self.evaluator(resource.file).value(resource.body.attributes[name][0])


def _given(text: str) -> str | int | bool:
    """The value of a variable from the command line."""
    if text in ("true", "false"):
        return text == "true"
    digits = text.removeprefix("-")
    return int(text) if digits.isdigit() and digits.isascii() else text
