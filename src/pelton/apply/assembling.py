"""Resources of maps that have the API's names: streams, consumers and buckets, whatever dialect they come from."""

from typing import Any

import msgspec

from pelton.api import ConsumerConfig, Placement, Republish, StreamConfig, StreamSource, encode
from pelton.api.fields import Duration, Int, Int32, Int64, Storage
from pelton.api.keyvalue import valid_key
from pelton.api.subjects import valid_name
from pelton.apply.model import Declared, Entry, Key, Node, Resource, title
from pelton.apply.subjects import check_subjects
from pelton.apply.values import bytes_of, shown, structured
from pelton.client.base.models import StreamConfig as ClientStreamConfig
from pelton.client.keyvalue.config import KeyValueConfig
from pelton.client.objects.models import ObjectStoreConfig
from pelton.errors import PeltonError


class _Bucket(msgspec.Struct, kw_only=True):
    """The fields of both kinds of buckets in a file."""

    bucket: str = ""
    description: str = ""
    ttl: Duration = 0
    max_bytes: Int64 = 0
    storage: Storage = "file"
    replicas: Int = 1
    compression: bool = False
    placement: Placement | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)


class KeyValueFields(_Bucket, kw_only=True):
    """The fields of a key-value bucket in a file."""

    history: Int = 1
    limit_marker_ttl: Duration = 0
    max_value_size: Int32 = 0
    republish: Republish | None = None
    mirror: StreamSource | None = None
    sources: list[StreamSource] = msgspec.field(default_factory=list)
    allow_atomic: bool = False


class ObjectStoreFields(_Bucket, kw_only=True):
    """The fields of an object store in a file."""


class Assembly:
    """Collects the resources of all files; mistakes are noted in ``declared``."""

    def __init__(self, declared: Declared) -> None:
        """Nothing is declared yet."""
        self.declared = declared
        self._resources: dict[Key, Resource] = {}
        self._entries: dict[Key, Entry] = {}

    def stream(
        self, node: Node, prevent_delete: bool = False, prevent_update: bool = False
    ) -> None:
        """A map with the fields of a stream."""
        config = structured(self.declared, node, StreamConfig)
        if isinstance(node.value, dict):
            check_subjects(self.declared, node)
        if self._named(node, "stream", config.name):
            self._add(
                Resource(
                    "stream",
                    config.name,
                    config,
                    node.at,
                    prevent_delete=prevent_delete,
                    prevent_update=prevent_update,
                )
            )

    def consumer(
        self,
        node: Node,
        stream: Node | None,
        prevent_delete: bool = False,
        prevent_update: bool = False,
    ) -> None:
        """A map with the fields of a consumer, and its stream's name."""
        config = structured(self.declared, node, ConsumerConfig)
        if isinstance(node.value, dict):
            check_subjects(self.declared, node)
        name = config.durable_name or config.name
        if not self._named(node, "consumer", name):
            return
        if stream is None or not isinstance(stream.value, str) or not valid_name(stream.value):
            given = "" if stream is None else f", got {shown(stream.value)}"
            text = f'consumer "{name}" needs the name of its stream{given}'
            self.declared.wrong(node.at if stream is None else stream.at, text)
            return
        if config.name and config.name != name:
            text = f'durable_name "{name}" and name "{config.name}" differ'
            self.declared.wrong(node.at, text)
        config.name = name
        self._add(
            Resource(
                "consumer",
                stream.value,
                config,
                node.at,
                name,
                prevent_delete=prevent_delete,
                prevent_update=prevent_update,
            )
        )

    def bucket(
        self, node: Node, prevent_delete: bool = False, prevent_update: bool = False
    ) -> None:
        """A map with the fields of a key-value bucket, which becomes its stream."""
        fields = structured(self.declared, self._eased(node), KeyValueFields)
        if not self._named(node, "bucket", fields.bucket):
            return
        try:
            made = KeyValueConfig(**_values(fields)).stream_config()
        except (PeltonError, ValueError, TypeError) as problem:
            self.declared.wrong(node.at, f"bucket {fields.bucket}: {problem}")
            return
        self._add_bucket("kv", made, node, prevent_delete, prevent_update)

    def object_store(
        self, node: Node, prevent_delete: bool = False, prevent_update: bool = False
    ) -> None:
        """A map with the fields of an object store, which becomes its stream."""
        fields = structured(self.declared, self._eased(node), ObjectStoreFields)
        if not self._named(node, "object store", fields.bucket):
            return
        try:
            made = ObjectStoreConfig(**_values(fields)).on(ClientStreamConfig(name=""))
        except (PeltonError, ValueError, TypeError) as problem:
            self.declared.wrong(node.at, f"object store {fields.bucket}: {problem}")
            return
        self._add_bucket("object", made, node, prevent_delete, prevent_update)

    def entry(
        self, bucket: Node | None, key: Node, value: Node, prevent_delete: bool = False
    ) -> None:
        """A key of a bucket and its value: a text, or anything else as JSON."""
        wrong = self.declared.wrong
        if bucket is None or not isinstance(bucket.value, str) or not valid_name(bucket.value):
            given = "" if bucket is None else f", got {shown(bucket.value)}"
            wrong((bucket or key).at, f"an entry needs the name of its bucket{given}")
            return
        if not isinstance(key.value, str) or not valid_key(key.value):
            text = f"{shown(key.value)} cannot be a key: use letters, digits and any of - _ / = . in it"
            wrong(key.at, text)
            return
        try:
            data = bytes_of(value)
        except ValueError as problem:
            wrong(value.at, f"entry {key.value}: {problem}")
            return
        made = Entry(bucket.value, key.value, data, value.at, prevent_delete)
        first = self._entries.setdefault(made.key, made)
        if first is not made:
            wrong(made.place, f"{made.title} is declared twice, also at {first.place}")
            return
        self.declared.entries.append(made)

    def _add_bucket(
        self,
        kind: Any,
        made: ClientStreamConfig,
        node: Node,
        prevent_delete: bool,
        prevent_update: bool,
    ) -> None:
        config = wire(made)
        self._add(
            Resource(
                kind,
                config.name,
                config,
                node.at,
                prevent_delete=prevent_delete,
                prevent_update=prevent_update,
            )
        )

    def _eased(self, node: Node) -> Node:
        """Accept the forms of other tools: names of origins alone, ``s2``, ``num_replicas``."""
        if not isinstance(node.value, dict):
            return node
        fields = dict(node.value)
        if "num_replicas" in fields and "replicas" not in fields:
            fields["replicas"] = fields.pop("num_replicas")
        if "name" in fields and "bucket" not in fields:
            fields["bucket"] = fields.pop("name")
        compression = fields.get("compression")
        if compression is not None and compression.value in ("s2", "none"):
            fields["compression"] = Node(
                compression.value == "s2", compression.place, compression.key
            )
        for name in ("mirror", "sources"):
            if name in fields:
                fields[name] = _origins(fields[name])
        return Node(fields, node.place, node.key)

    def _named(self, node: Node, what: str, name: str) -> bool:
        if not name:
            wrong = "this map" if not isinstance(node.value, dict) else f"this {what}"
            if isinstance(node.value, dict):
                self.declared.wrong(node.at, f"{wrong} has no name")
            return False
        if not valid_name(name):
            text = f'"{name}" cannot be the name of a {what}: no spaces, and none of . * > / \\'
            self.declared.wrong(node.at, text)
            return False
        return True

    def _add(self, resource: Resource) -> None:
        first = self._resources.setdefault(resource.key, resource)
        if first is not resource:
            text = f"{title(*resource.key)} is declared twice, also at {first.place}"
            self.declared.wrong(resource.place, text)
            return
        self.declared.resources.append(resource)


def _origins(node: Node) -> Node:
    if isinstance(node.value, list):
        return Node([_origins(each) for each in node.value], node.place, node.key)
    if isinstance(node.value, str):
        return Node({"name": Node(node.value, node.place)}, node.place, node.key)
    return node


def _values(fields: _Bucket) -> dict[str, Any]:
    from pelton.client.base.durations import Nanoseconds

    found = {name: getattr(fields, name) for name in fields.__struct_fields__}
    for name in ("ttl", "limit_marker_ttl"):
        if name in found:
            found[name] = Nanoseconds(found[name])
    for name in ("mirror", "sources"):
        value = found.get(name)
        if isinstance(value, list):
            found[name] = [_client_source(each) for each in value]
        elif value is not None:
            found[name] = _client_source(value)
    return found


def _client_source(source: StreamSource) -> Any:
    from pelton.client.base.models import StreamSource as ClientStreamSource

    return ClientStreamSource(**{n: getattr(source, n) for n in source.__struct_fields__})


def wire(config: ClientStreamConfig) -> StreamConfig:
    """A configuration of the client with the types of the API."""
    from pelton.api import decode_response

    return decode_response(StreamConfig, encode(config))
