"""Converts the claims of account and user JWTs to the values that a configuration gives. Pure."""

from pelton.server.auth.claims import (
    AccountClaims,
    ExportPart,
    ImportPart,
    LimitsPart,
    Permission,
    ResponsePermission,
    StorageLimits,
)
from pelton.server.settings.accounts import (
    CHUNKED,
    RESPONSE_THRESHOLD_NS,
    SINGLETON,
    STREAMED,
    AccountLimits,
    AccountSettings,
    Export,
    Import,
    JetStreamLimits,
    Latency,
    Mapping,
    MappingTarget,
)
from pelton.server.settings.users import (
    RESPONSES_EXPIRE_NS,
    RESPONSES_MAX,
    Permissions,
    Responses,
    SubjectPermission,
)

_RESPONSES = {"": SINGLETON, "Singleton": SINGLETON, "Stream": STREAMED, "Chunked": CHUNKED}


def account_settings(claims: AccountClaims) -> AccountSettings:
    """The settings of an account from its JWT. The account's name is its key."""
    nats = claims.nats
    defaults = nats.default_permissions
    return AccountSettings(
        name=claims.sub,
        nkey=claims.sub,
        default_permissions=(
            permissions(defaults.pub, defaults.sub, defaults.resp) if defaults else None
        ),
        jetstream=_jetstream(nats.limits),
        exports=[_export(each, claims.sub) for each in nats.exports or []],
        imports=[_import(each) for each in nats.imports or []],
        mappings=[
            Mapping(
                subject,
                [MappingTarget(t.subject, t.weight or 100, t.cluster) for t in targets],
            )
            for subject, targets in (nats.mappings or {}).items()
        ],
        limits=AccountLimits(
            max_connections=nats.limits.conn,
            max_subscriptions=nats.limits.subs,
            max_payload=nats.limits.payload,
            max_leafnodes=nats.limits.leaf,
            max_data=nats.limits.data,
            max_imports=nats.limits.imports,
            max_exports=nats.limits.exports,
            wildcards=nats.limits.wildcards,
        ),
        trace_destination=nats.trace.dest if nats.trace else "",
        trace_sampling=(nats.trace.sampling or 100) if nats.trace else 0,
        name_tag=claims.name,
        issuer_key=claims.iss,
        tags=claims.nats.tags or [],
        revoked_users=claims.nats.revocations or {},
    )


def permissions(
    publish: Permission | None, subscribe: Permission | None, answers: ResponsePermission | None
) -> Permissions | None:
    """The permissions of a JWT; None when it sets none.

    An empty list in a JWT allows everything; to allow nothing, a JWT denies all subjects.
    """
    found = Permissions(_rules(publish), _rules(subscribe))
    if answers is not None:
        found.responses = Responses(
            answers.max or RESPONSES_MAX, answers.ttl or RESPONSES_EXPIRE_NS
        )
        if found.publish.allow is None:
            found.publish.allow = []
    return None if found == Permissions() else found


def _rules(rules: Permission | None) -> SubjectPermission:
    if rules is None:
        return SubjectPermission()
    return SubjectPermission(rules.allow or None, rules.deny or [])


def _jetstream(limits: LimitsPart) -> dict[str, JetStreamLimits] | None:
    if limits.tiered_limits:
        tiers = limits.tiered_limits
        if not any(tier.mem_storage or tier.disk_storage for tier in tiers.values()):
            return None
        return {name: _storage(tier) for name, tier in tiers.items()}
    if not limits.mem_storage and not limits.disk_storage:
        return None
    return {"": _storage(limits)}


def _storage(limits: StorageLimits) -> JetStreamLimits:
    # For streams, consumers and pending acks, 0 means no limit.
    return JetStreamLimits(
        max_memory=limits.mem_storage,
        max_store=limits.disk_storage,
        max_streams=limits.streams or -1,
        max_consumers=limits.consumer or -1,
        max_ack_pending=limits.max_ack_pending or -1,
        memory_max_stream_bytes=limits.mem_max_stream_bytes or -1,
        store_max_stream_bytes=limits.disk_max_stream_bytes or -1,
        max_bytes_required=limits.max_bytes_required,
    )


def _export(part: ExportPart, account: str) -> Export:
    latency = None
    if part.service_latency is not None:
        sampling = part.service_latency.sampling
        latency = Latency(
            part.service_latency.results, sampling if isinstance(sampling, int) else 0
        )
    return Export(
        subject=part.subject,
        service=part.type == "service",
        token_required=part.token_req,
        account_token_position=part.account_token_position,
        response=_RESPONSES.get(part.response_type, SINGLETON),
        threshold_ns=part.response_threshold or RESPONSE_THRESHOLD_NS,
        latency=latency,
        allow_trace=part.allow_trace,
        name=part.name,
        revoked=part.revocations or {},
    )


def _import(part: ImportPart) -> Import:
    service = part.type == "service"
    subject, to, prefix = part.subject, part.local_subject, ""
    if part.to and service:
        # Older form: in a service import, `subject` is the importer's and `to` the exporter's.
        subject, to = part.to, part.subject
    elif part.to:
        prefix = part.to
    return Import(
        account=part.account,
        subject=subject,
        service=service,
        to=to,
        prefix=prefix,
        share=part.share,
        allow_trace=part.allow_trace,
        token=part.token,
        name=part.name,
    )
