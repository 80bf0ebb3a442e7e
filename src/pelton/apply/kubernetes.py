"""Kubernetes manifests of the JetStream controller (NACK): Stream, Consumer, KeyValue, ObjectStore.

``apiVersion: jetstream.nats.io/v1beta1`` and ``v1beta2``. Defaults are those of the custom resource definitions: a
stream without ``storage`` is in memory, a consumer without ``ackPolicy`` needs no acks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pelton.apply.model import Node, NodeValue
from pelton.apply.tables import Attribute, Table, plain, translate
from pelton.apply.values import shown, unknown

if TYPE_CHECKING:
    from pelton.apply.assembling import Assembly

GROUP = "jetstream.nats.io/"
VERSIONS = ("jetstream.nats.io/v1beta2", "jetstream.nats.io/v1beta1")
KINDS = ("Stream", "Consumer", "KeyValue", "ObjectStore")
_UNSET_NS = "1ns"  # how the definition of Consumer writes "no ackWait"

TRANSFORM: Table = {"source": Attribute("src"), "dest": Attribute("dest")}
_SOURCE: Table = {
    "name": Attribute("name"),
    "optStartSeq": Attribute("opt_start_seq"),
    "optStartTime": Attribute("opt_start_time"),
    "filterSubject": Attribute("filter_subject"),
    "externalApiPrefix": Attribute("external.api"),
    "externalDeliverPrefix": Attribute("external.deliver"),
    "subjectTransforms": Attribute("subject_transforms", within=TRANSFORM),
}
_PLACEMENT = Attribute("placement", within=plain("cluster", "tags"))
_REPUBLISH = Attribute(
    "republish",
    within={
        "source": Attribute("src"),
        "destination": Attribute("dest"),
        "headers_only": Attribute("headers_only"),
    },
)
STREAM: Table = {
    **plain("name", "description", "subjects", "retention", "discard", "sealed", "metadata"),
    "storage": Attribute("storage", default="memory"),
    "maxConsumers": Attribute("max_consumers"),
    "maxMsgs": Attribute("max_msgs"),
    "maxBytes": Attribute("max_bytes"),
    "discardPerSubject": Attribute("discard_new_per_subject"),
    "maxAge": Attribute("max_age", "text"),
    "maxMsgsPerSubject": Attribute("max_msgs_per_subject"),
    "maxMsgSize": Attribute("max_msg_size"),
    "replicas": Attribute("num_replicas"),
    "noAck": Attribute("no_ack"),
    "duplicateWindow": Attribute("duplicate_window", "text"),
    "placement": _PLACEMENT,
    "mirror": Attribute("mirror", within=_SOURCE),
    "sources": Attribute("sources", within=_SOURCE),
    "denyDelete": Attribute("deny_delete"),
    "denyPurge": Attribute("deny_purge"),
    "allowRollup": Attribute("allow_rollup_hdrs"),
    "compression": Attribute("compression"),
    "firstSequence": Attribute("first_seq"),
    "subjectTransform": Attribute("subject_transform", within=TRANSFORM),
    "republish": _REPUBLISH,
    "allowDirect": Attribute("allow_direct"),
    "mirrorDirect": Attribute("mirror_direct"),
    "allowMsgTtl": Attribute("allow_msg_ttl"),
    "subjectDeleteMarkerTtl": Attribute("subject_delete_marker_ttl", "text"),
    "allowMsgCounter": Attribute("allow_msg_counter"),
    "allowAtomicPublish": Attribute("allow_atomic"),
    "allowMsgSchedules": Attribute("allow_msg_schedules"),
    "persistMode": Attribute("persist_mode"),
    "consumerLimits": Attribute(
        "consumer_limits",
        within={
            "inactiveThreshold": Attribute("inactive_threshold", "text"),
            "maxAckPending": Attribute("max_ack_pending"),
        },
    ),
}
CONSUMER: Table = {
    **plain("description", "backoff", "metadata"),
    "backoff": Attribute("backoff", "text"),
    "durableName": Attribute("durable_name"),
    "optStartSeq": Attribute("opt_start_seq"),
    "optStartTime": Attribute("opt_start_time"),
    "deliverSubject": Attribute("deliver_subject"),
    "deliverGroup": Attribute("deliver_group"),
    "ackPolicy": Attribute("ack_policy", default="none"),
    "ackWait": Attribute("ack_wait", "text"),
    "maxDeliver": Attribute("max_deliver"),
    "filterSubject": Attribute("filter_subject"),
    "filterSubjects": Attribute("filter_subjects"),
    "replayPolicy": Attribute("replay_policy"),
    "sampleFreq": Attribute("sample_freq"),
    "maxWaiting": Attribute("max_waiting"),
    "rateLimitBps": Attribute("rate_limit_bps"),
    "maxAckPending": Attribute("max_ack_pending"),
    "flowControl": Attribute("flow_control"),
    "headersOnly": Attribute("headers_only"),
    "heartbeatInterval": Attribute("idle_heartbeat", "text"),
    "maxRequestBatch": Attribute("max_batch"),
    "maxRequestExpires": Attribute("max_expires", "text"),
    "maxRequestMaxBytes": Attribute("max_bytes"),
    "inactiveThreshold": Attribute("inactive_threshold", "text"),
    "replicas": Attribute("num_replicas"),
    "memStorage": Attribute("mem_storage"),
    "pauseUntil": Attribute("pause_until"),
    "priorityPolicy": Attribute("priority_policy"),
    "pinnedTtl": Attribute("priority_timeout", "text"),
    "priorityGroups": Attribute("priority_groups"),
}
KEY_VALUE: Table = {
    **plain("bucket", "description", "history", "storage", "replicas", "compression"),
    "ttl": Attribute("ttl", "text"),
    "limitMarkerTtl": Attribute("limit_marker_ttl", "ns"),
    "maxValueSize": Attribute("max_value_size"),
    "maxBytes": Attribute("max_bytes"),
    "placement": _PLACEMENT,
    "republish": _REPUBLISH,
    "mirror": Attribute("mirror", within=_SOURCE),
    "sources": Attribute("sources", within=_SOURCE),
}
OBJECT_STORE: Table = {
    **plain("bucket", "description", "storage", "replicas", "compression", "metadata"),
    "ttl": Attribute("ttl", "text"),
    "maxBytes": Attribute("max_bytes"),
    "placement": _PLACEMENT,
}
DELIVER_POLICIES = {
    "all": "all",
    "last": "last",
    "new": "new",
    "byStartSequence": "by_start_sequence",
    "byStartTime": "by_start_time",
    "lastPerSubject": "last_per_subject",
}
_CONNECTION = (
    "account",
    "creds",
    "nkey",
    "servers",
    "tls",
    "tlsFirst",
    "jsDomain",
)
_PREVENT = ("preventDelete", "preventUpdate")


def is_manifest(node: Node) -> bool:
    """Whether a document is a manifest of Kubernetes."""
    return isinstance(node.value, dict) and {"apiVersion", "kind"} <= node.value.keys()


def read_manifest(assembly: Assembly, node: Node) -> None:
    """Add the declarations of a manifest; manifests of other groups are skipped with a warning."""
    assert isinstance(node.value, dict)
    version, kind = node.value["apiVersion"].value, node.value["kind"].value
    items = node.value.get("items")
    if kind == "List" and items is not None and isinstance(items.value, list):
        for each in items.value:
            if is_manifest(each):
                read_manifest(assembly, each)
        return
    if not isinstance(version, str) or not version.startswith(GROUP):
        assembly.declared.warn(node.place, f"passed over: {kind} of {version} is not JetStream's")
        return
    if version not in VERSIONS:
        known = " or ".join(VERSIONS)
        assembly.declared.wrong(node.value["apiVersion"].at, f"expected {known}, got {version}")
        return
    if kind == "Account":
        text = "passed over: an Account is how the controller connects; see --server and --creds"
        assembly.declared.warn(node.place, text)
        return
    if kind not in KINDS:
        assembly.declared.wrong(
            node.value["kind"].at, f"{kind} is not understood; expected {', '.join(KINDS)}"
        )
        return
    for name, inner in node.value.items():
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            known_keys = ("apiVersion", "kind", "metadata", "spec", "status")
            assembly.declared.wrong(inner.at, unknown(name, known_keys))
    spec = node.value.get("spec")
    if spec is None or not isinstance(spec.value, dict):
        assembly.declared.wrong(node.place, f"this {kind} has no spec")
        return
    tables = {"Stream": STREAM, "Consumer": CONSUMER, "KeyValue": KEY_VALUE}
    given = _without_unset(spec, tables.get(kind, OBJECT_STORE))
    assert isinstance(given.value, dict)
    _read_spec(assembly, kind, given, given.value)


def _without_unset(node: Node, table: Table) -> Node:
    """The same without the values that mean "not set" where the API server writes every field: "",
    0, and maps without fields. Metadata may have empty texts.
    """
    if isinstance(node.value, list):
        return replace(node, value=[_without_unset(each, table) for each in node.value])
    if not isinstance(node.value, dict):
        return node
    found: dict[str, Node] = {}
    for name, inner in node.value.items():
        attribute = table.get(name)
        each = inner
        if attribute is not None and attribute.within is not None:
            each = _without_unset(inner, attribute.within)
        if attribute is None or not _is_unset(each.value):
            found[name] = each
    return replace(node, value=found)


def _is_unset(value: NodeValue) -> bool:
    zero = isinstance(value, int) and not isinstance(value, bool) and not value
    return zero or value == "" or value == {}


def _read_spec(assembly: Assembly, kind: str, spec: Node, given: dict[str, Node]) -> None:
    declared = assembly.declared
    for name in _CONNECTION:
        if name in given:
            text = f"spec.{name} is for the controller and does nothing here; see --server"
            declared.warn(given[name].at, text)
    policy = [_truth(assembly, given, name) for name in _PREVENT]
    besides = (*_CONNECTION, *_PREVENT)
    if kind == "Stream":
        if "storage" not in given:
            text = "storage defaults to memory in manifests; write storage: file to keep messages"
            declared.warn(spec.place, f"{text} over a restart")
        fields = translate(declared, spec, STREAM, besides)
        assembly.stream(Node(fields, spec.place), *policy)
    elif kind == "Consumer":
        fields = translate(
            declared, spec, CONSUMER, (*besides, "streamName", "deliverPolicy", "ackWait")
        )
        wait = given.get("ackWait")
        if wait is not None and wait.value != _UNSET_NS:
            one = Node({"ackWait": wait}, spec.place)
            fields |= translate(declared, one, {"ackWait": CONSUMER["ackWait"]})
        _deliver_policy(assembly, given, fields)
        assembly.consumer(Node(fields, spec.place), given.get("streamName"), *policy)
    elif kind == "KeyValue":
        fields = translate(declared, spec, KEY_VALUE, besides)
        assembly.bucket(Node(fields, spec.place), *policy)
    else:
        fields = translate(declared, spec, OBJECT_STORE, besides)
        assembly.object_store(Node(fields, spec.place), *policy)


def _deliver_policy(assembly: Assembly, given: dict[str, Node], fields: dict[str, Node]) -> None:
    node = given.get("deliverPolicy")
    if node is None or node.value == "":
        return
    if not isinstance(node.value, str) or node.value not in DELIVER_POLICIES:
        words = " or ".join(DELIVER_POLICIES)
        assembly.declared.wrong(
            node.at, f"deliverPolicy: expected {words}, got {shown(node.value)}"
        )
        return
    fields["deliver_policy"] = Node(DELIVER_POLICIES[node.value], node.place, node.key)


def _truth(assembly: Assembly, given: dict[str, Node], name: str) -> bool:
    node = given.get(name)
    if node is None:
        return False
    if not isinstance(node.value, bool):
        assembly.declared.wrong(node.at, f"{name}: expected true or false, got {shown(node.value)}")
        return False
    return node.value
