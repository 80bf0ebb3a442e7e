"""The configuration of a server as files of every dialect: JSON, YAML, Terraform, manifests for
Kubernetes.

Defaults are left out, durations have units. Each export is read again and compared with the server;
fields that the dialect does not have are reported.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pelton.api import ConsumerConfig, StreamConfig, decode_response, encode
from pelton.api.keyvalue import valid_key
from pelton.apply import kubernetes, terraform
from pelton.apply.assembling import wire
from pelton.apply.defaults import settled_consumer, settled_stream
from pelton.apply.model import title
from pelton.apply.planning import as_data, plan
from pelton.apply.reading import read
from pelton.apply.showing import DURATIONS, value_text
from pelton.apply.tables import duration_text, untranslate
from pelton.client.base.models import StreamConfig as ClientStreamConfig
from pelton.client.keyvalue.config import KeyValueConfig, config_of
from pelton.client.objects.models import ObjectStoreConfig
from pelton.errors import PeltonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.apply.inspecting import Live
    from pelton.apply.model import Key

Format: TypeAlias = Literal["json", "yaml", "tf", "crd"]
Fields: TypeAlias = "dict[str, Any]"

FORMATS: tuple[Format, ...] = ("json", "yaml", "tf", "crd")
_FILES: Mapping[Format, str] = {
    "json": "export.json",
    "yaml": "export.yaml",
    "tf": "export.tf",
    "crd": "export.yaml",
}
_STREAM_KEPT = ("name", "subjects", "retention", "storage")
_CONSUMER_KEPT = ("durable_name", "deliver_policy", "ack_policy")


def export(live: Live, form: Format) -> tuple[str, list[str]]:
    """The text for the configuration of a server, and the fields that the dialect does not have."""
    live = _durable(live)
    writer = {"json": _json, "yaml": _yaml, "tf": _terraform, "crd": _manifests}[form]
    text = writer(_parts(live))
    return text, list(_doubts(live, form, text))


def _durable(live: Live) -> Live:
    """The same without consumers that belong to running programs."""
    consumers = {
        key: each
        for key, each in live.consumers.items()
        if each.config.durable_name and not each.config.direct
    }
    return type(live)(live.streams, consumers, live.entries)


def _doubts(live: Live, form: Format, text: str) -> list[str]:
    """The changes if the text were applied to the same server."""
    from pelton.apply.terraform import File

    declared = read([File(_FILES[form], text)] if live.streams else [])
    found = [str(problem) for problem in declared.problems]
    for change in plan(declared, live).changes:
        for each in change.differences if change.action != "keep" else ():
            now, said = value_text(each.field, each.now), value_text(each.field, each.wanted)
            found.append(f"{change.title}: {form} cannot say {each.field} {now}, it says {said}")
        if change.action == "refuse":
            found.append(f"{change.title}: {'; '.join(change.reasons)}")
    said_entries = {each.key for each in declared.entries}
    for bucket, key in sorted(live.entries.keys() - said_entries):
        found.append(f"{title(f'KV_{bucket}', entry=key)}: {form} cannot say it")
    return found


class _Parts:
    """Everything by its kind, as fields of the API without defaults."""

    def __init__(self) -> None:
        self.streams: dict[str, Fields] = {}
        self.consumers: dict[Key, Fields] = {}
        self.buckets: dict[str, Fields] = {}
        self.stores: dict[str, Fields] = {}
        self.whole: dict[str, Fields] = {}
        self.entries: dict[str, dict[str, bytes]] = {}


def _parts(live: Live) -> _Parts:
    parts = _Parts()
    for name, stream in sorted(live.streams.items()):
        config = settled_stream(stream.config)
        parts.whole[name] = _stream_fields(config)
        bucket, store = _bucket(config), _store(config)
        if bucket is not None:
            parts.buckets[name] = bucket
        elif store is not None:
            parts.stores[name] = store
        else:
            parts.streams[name] = parts.whole[name]
    for key, consumer in sorted(live.consumers.items()):
        owner = live.streams[key[0]].config
        parts.consumers[key] = _consumer_fields(settled_consumer(consumer.config, None), owner)
    for (of, key_name), entry in sorted(live.entries.items()):
        if valid_key(key_name):
            parts.entries.setdefault(of, {})[key_name] = entry.value
    return parts


def _stream_fields(config: StreamConfig) -> Fields:
    default = StreamConfig(
        name=config.name, max_age=config.max_age, mirror=config.mirror, sources=config.sources
    )
    return _without(as_data(config), as_data(settled_stream(default)), _STREAM_KEPT)


def _consumer_fields(config: ConsumerConfig, stream: StreamConfig) -> Fields:
    default = ConsumerConfig(
        durable_name=config.durable_name,
        ack_policy=config.ack_policy,
        backoff=config.backoff,
        deliver_subject=config.deliver_subject,
        priority_policy=config.priority_policy,
    )
    found = _without(as_data(config), as_data(settled_consumer(default, stream)), _CONSUMER_KEPT)
    if config.backoff:
        found["backoff"] = config.backoff
    if config.deliver_subject:
        found["deliver_subject"] = config.deliver_subject
    if config.priority_policy:
        found["priority_policy"] = config.priority_policy
    found.pop("pause_until", None)  # a pause is a state and no configuration
    return found


def _without(data: Fields, default: Fields, kept: tuple[str, ...]) -> Fields:
    """The fields that a reader could not guess."""
    always = (*kept, "max_age", "mirror", "sources")
    found = {
        name: value
        for name, value in data.items()
        if (name in always or value != default.get(name)) and value not in (0, {}, [])
    }
    # a default that is not wanted
    found |= {
        name: data.get(name, 0)
        for name in default
        if name not in data and isinstance(default[name], int)
    }
    return found


def _bucket(config: StreamConfig) -> Fields | None:
    """A stream as a key-value bucket, if it is exactly what a client would make."""
    try:
        made = config_of(decode_response(ClientStreamConfig, encode(config)))
        again = settled_stream(wire(made.stream_config()))
    except (PeltonError, ValueError, TypeError):
        return None
    if as_data(again) != as_data(config):
        return None
    return _given(made, KeyValueConfig(bucket=made.bucket), config, "max_value_size")


def _store(config: StreamConfig) -> Fields | None:
    """A stream as an object store, if it is exactly what a client would make."""
    try:
        made = ObjectStoreConfig(
            bucket=config.name.removeprefix("OBJ_"),
            description=config.description,
            ttl=_span(config.max_age),
            max_bytes=config.max_bytes,
            storage=config.storage,
            replicas=config.num_replicas,
            placement=config.placement,
            compression=config.compression == "s2",
            metadata=config.metadata,
        )
        again = settled_stream(wire(made.on(ClientStreamConfig(name=""))))
    except (PeltonError, ValueError, TypeError):
        return None
    if as_data(again) != as_data(config):
        return None
    return _given(made, ObjectStoreConfig(bucket=made.bucket), config)


def _span(ns: int) -> Any:
    from pelton.client.base.durations import Nanoseconds

    return Nanoseconds(ns)


def _given(made: Any, default: Any, config: StreamConfig, *sizes: str) -> Fields:
    """The fields of a bucket that are not those of a bucket with only a name."""
    data = as_data(config)
    found: Fields = {}
    for name in type(made).__dataclass_fields__:
        value = getattr(made, name)
        if name in ("mirror", "sources", "placement", "republish"):
            value = data.get(name)
        if name in ("max_bytes", *sizes) and value == -1:
            value = 0
        if value and value != getattr(default, name):
            found[name] = value
    found["bucket"] = made.bucket
    found["storage"] = made.storage
    return found


# -- JSON and YAML ---------------------------------------------------------------------------------


def _sections(parts: _Parts) -> Fields:
    found: Fields = {}
    if parts.streams:
        found["streams"] = {name: _own(each, "name") for name, each in parts.streams.items()}
    for (stream, name), each in parts.consumers.items():
        fields = _own(each, "name", "durable_name")
        if "inactive_threshold" in fields:
            fields = {"durable_name": name, **fields}
        found.setdefault("consumers", {}).setdefault(stream, {})[name] = fields
    if parts.buckets:
        found["kv"] = {each["bucket"]: _own(each, "bucket") for each in parts.buckets.values()}
    if parts.entries:
        found["entries"] = {
            bucket: {key: _entry_value(value) for key, value in group.items()}
            for bucket, group in parts.entries.items()
        }
    if parts.stores:
        found["objects"] = {each["bucket"]: _own(each, "bucket") for each in parts.stores.values()}
    return found


def _own(fields: Fields, *left_out: str) -> Fields:
    return {name: _timed(name, each) for name, each in fields.items() if name not in left_out}


def _timed(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        if name == "metadata":
            return dict(value)
        return {inner: _timed(inner, each) for inner, each in value.items()}
    if isinstance(value, list):
        return [_timed(name, each) for each in value]
    return duration_text(int(value)) if name in DURATIONS and value else value


def _entry_value(value: bytes) -> str | Fields:
    """A value that is UTF-8 as text, any other as Base64."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode()}


_NOTHING: Fields = {"streams": {}}
"""What an empty server exports, so that the file can be applied."""


def _json(parts: _Parts) -> str:
    return json.dumps(_sections(parts) or _NOTHING, indent=2, ensure_ascii=False) + "\n"


def _yaml(parts: _Parts) -> str:
    import yaml

    text: str = yaml.safe_dump(
        _sections(parts) or _NOTHING, sort_keys=False, allow_unicode=True, width=120
    )
    return text


# -- Kubernetes ------------------------------------------------------------------------------------


def _manifests(parts: _Parts) -> str:
    import yaml

    names: set[str] = set()
    documents = []
    for kind, table, group in (
        ("Stream", kubernetes.STREAM, parts.streams),
        ("KeyValue", kubernetes.KEY_VALUE, parts.buckets),
        ("ObjectStore", kubernetes.OBJECT_STORE, parts.stores),
    ):
        for name, fields in group.items():
            if kind != "Stream" and not _fits(fields, table):
                document = _manifest("Stream", kubernetes.STREAM, parts.whole[name], name, names)
            else:
                document = _manifest(kind, table, fields, name, names)
            documents.append(document)
    policies = {policy: word for word, policy in kubernetes.DELIVER_POLICIES.items()}
    for (stream, name), fields in parts.consumers.items():
        made = _manifest("Consumer", kubernetes.CONSUMER, fields, f"{stream}-{name}", names)
        made["spec"]["deliverPolicy"] = policies[fields["deliver_policy"]]
        made["spec"] = {"streamName": stream, **made["spec"]}
        documents.append(made)
    text: str = yaml.safe_dump_all(
        documents, sort_keys=False, allow_unicode=True, width=120, explicit_start=True
    )
    return text if documents else ""


def _manifest(kind: str, table: Any, fields: Fields, name: str, names: set[str]) -> Fields:
    label = _unique(re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x", names)
    return {
        "apiVersion": kubernetes.VERSIONS[0],
        "kind": kind,
        "metadata": {"name": label},
        "spec": untranslate(fields, table),
    }


def _unique(label: str, names: set[str]) -> str:
    found, number = label, 1
    while found in names:
        number += 1
        found = f"{label}-{number}"
    names.add(found)
    return found


def _fits(fields: Fields, table: Any) -> bool:
    """Whether a dialect has a name for every field."""
    return fields.keys() <= {each.wire.partition(".")[0] for each in table.values()}


# -- Terraform -------------------------------------------------------------------------------------

_JSON_ESCAPE = re.compile(r"\\.")  # one at a time: an escaped backslash before "f" is no form feed
_FOREIGN = {"\\b": "\\u0008", "\\f": "\\u000c"}
"""Escapes of JSON that Terraform does not have."""
_BLOCKS = {"mirror", "source", "subject_transform", "external", "consumer"}


def _terraform(parts: _Parts) -> str:
    labels: dict[Key, str] = {}
    names: set[str] = set()
    buckets: dict[str, str] = {}
    out: list[str] = []
    for kind, group in (
        ("jetstream_stream", parts.streams),
        ("jetstream_kv_bucket", parts.buckets),
        ("jetstream_obj_bucket", parts.stores),
    ):
        for name, fields in group.items():
            used, given = kind, fields
            if not _fits(fields, terraform.TABLES[kind]):
                used, given = "jetstream_stream", parts.whole[name]
            label = _unique(_label(name), names)
            if used == "jetstream_stream":
                labels[name, ""] = label
                ids = f"JETSTREAM_STREAM_{name}"
            else:
                if used == "jetstream_kv_bucket":
                    buckets[given["bucket"]] = label
                    given = {"history": 1, **given}  # the provider's default is another one
                ids = f"{terraform.IDS[used][0]}{given['bucket']}"
            out += [f"# terraform import {used}.{label} {ids}"]
            out += _resource(used, label, untranslate(given, terraform.TABLES[used]))
    out += _terraform_entries(parts, buckets, names)
    for (stream, name), fields in parts.consumers.items():
        label = _unique(_label(f"{stream}_{name}"), names)
        given = untranslate(fields, terraform.CONSUMER)
        owner = labels.get((stream, ""))
        reference = f"jetstream_stream.{owner}.id" if owner else _quoted(stream)
        start = {policy: word for word, policy in terraform.STARTS.items()}[
            fields["deliver_policy"]
        ]
        given[start] = {
            "stream_sequence": fields.get("opt_start_seq"),
            "start_time": fields.get("opt_start_time"),
        }.get(start, True)
        ids = f"JETSTREAM_STREAM_{stream}_CONSUMER_{name}"
        out += [f"# terraform import jetstream_consumer.{label} {ids}"]
        out += _resource("jetstream_consumer", label, given, [f"  stream_id = {reference}"])
    return "\n".join(out)


def _terraform_entries(parts: _Parts, buckets: dict[str, str], names: set[str]) -> list[str]:
    """Entries with texts as values; the dialect has no other values."""
    out: list[str] = []
    for bucket, group in parts.entries.items():
        owner = buckets.get(bucket)
        reference = f"jetstream_kv_bucket.{owner}.name" if owner else _quoted(bucket)
        for key, data in group.items():
            value = _entry_value(data)
            if not isinstance(value, str):
                continue
            label = _unique(_label(f"{bucket}_{key}"), names)
            fields = {"key": key, "value": value}
            out += [
                f"# terraform import jetstream_kv_entry.{label} JETSTREAM_KV_{bucket}_ENTRY_{key}"
            ]
            out += _resource("jetstream_kv_entry", label, fields, [f"  bucket = {reference}"])
    return out


def _label(name: str) -> str:
    label = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return label if re.match(r"[A-Za-z_]", label) else f"_{label}"


def _resource(kind: str, label: str, fields: Fields, first: list[str] | None = None) -> list[str]:
    return [
        f'resource "{kind}" "{label}" {{',
        *(first or []),
        *_attributes(fields, "  "),
        "}\n",
    ]


def _attributes(fields: Fields, indent: str) -> list[str]:
    blocks = {name: each for name, each in fields.items() if _is_block(name, each)}
    out = [
        f"{indent}{name} = {_expression(value)}"
        for name, value in fields.items()
        if name not in blocks
    ]
    for name, value in blocks.items():
        for each in value if isinstance(value, list) else [value]:
            out += [f"{indent}{name} {{", *_attributes(each, f"{indent}  "), f"{indent}}}"]
    return out


def _is_block(name: str, value: Any) -> bool:
    """Whether Terraform writes this as blocks; a transform also has a text with the name source."""
    return name in _BLOCKS and isinstance(value, list | dict)


def _expression(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(_expression(each) for each in value)}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_quoted(name)} = {_expression(each)}" for name, each in value.items())
        return f"{{ {inner} }}"
    return _quoted(value) if isinstance(value, str) else str(value)


def _quoted(text: str) -> str:
    """A text of Terraform, in which nothing is a template."""
    quoted = json.dumps(text, ensure_ascii=False)
    for sign, code in (("$", "\\u0024"), ("%", "\\u0025")):
        quoted = quoted.replace(f"{sign}{{", f"{code}{{")
    return _JSON_ESCAPE.sub(lambda found: _FOREIGN.get(found[0], found[0]), quoted)
