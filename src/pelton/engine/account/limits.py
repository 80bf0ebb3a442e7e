"""The limits of an account and of the server: the choice of the limits for a stream or consumer,
and the checks.

An account has one set of limits for all its streams, under the name "", or one for each tier, such
as "R1". The logs count stored bytes and refuse messages beyond the limit (core/base/quota); this
module checks reserved bytes and counts of streams and consumers.
"""

from collections.abc import Iterator

from pelton.api import errors_generated as errors
from pelton.api.calls import AccountInfo, AccountLimits, ApiStats, TierInfo
from pelton.api.consumers import ConsumerConfig
from pelton.api.streams import StreamConfig
from pelton.core.base.quota import NO_LIMIT, Quota
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.account.catalog import StreamEntry
from pelton.engine.base.settings import StreamCaps
from pelton.engine.config.consumer_config import ConsumerCaps

_RESERVED = {
    "memory": errors.MemoryResourcesExceededError,
    "file": errors.StorageResourcesExceededError,
}


def tier_name(replicas: int) -> str:
    """Return the tier of a stream or consumer with so many replicas."""
    return f"R{replicas or 1}"


def select(account: JetStreamAccount, replicas: int) -> tuple[AccountLimits, str]:
    """Return the limits for a stream or consumer and the name of their tier. 10120: there are none."""
    for tier in ("", tier_name(replicas)):
        if tier in account.limits:
            return account.limits[tier], tier
    raise errors.NoLimitsError()


def stream_caps(account: JetStreamAccount, config: StreamConfig) -> StreamCaps:
    """Return the limits for a stream's configuration."""
    window = account.settings.limits.duplicate_window_ns
    try:
        limits, _ = select(account, config.num_replicas)
    except errors.NoLimitsError:
        return StreamCaps(duplicate_window_ns=window)
    of_memory = config.storage == "memory"
    most = limits.memory_max_stream_bytes if of_memory else limits.storage_max_stream_bytes
    return StreamCaps(
        max_bytes_required=limits.max_bytes_required,
        max_bytes=max(most, 0),
        duplicate_window_ns=window,
    )


def consumer_caps(
    account: JetStreamAccount, stream: StreamEntry, config: ConsumerConfig
) -> ConsumerCaps:
    """Return the limits for a consumer's configuration. 10120: there are none."""
    limits, _ = select(account, config.num_replicas or stream.config.num_replicas)
    server = account.settings.limits
    return ConsumerCaps(
        server_max_ack_pending=server.max_ack_pending,
        account_max_ack_pending=limits.max_ack_pending,
        max_batch=server.max_request_batch,
    )


def check_stream_count(account: JetStreamAccount, config: StreamConfig) -> None:
    """Check the number of streams before the configuration of a new one. Raises 10027, 10120."""
    limits, tier = select(account, config.num_replicas)
    others = sum(streams for streams, _ in _counted(account, tier=tier))
    present = account.streams.get(config.name)
    if present is not None and tier in ("", tier_name(present.config.num_replicas)):
        others -= 1
    if 0 < limits.max_streams <= others:
        raise errors.MaximumStreamsLimitError()


def check_stream(
    account: JetStreamAccount,
    config: StreamConfig,
    *,
    present: StreamConfig | None = None,
    besides_bytes: int = 0,
) -> None:
    """Check the bytes that a stream would reserve, beside the reservations of the other streams.

    Raises 10026, 10028, 10047, 10120. `present`: the configuration before an update; only the
    increase is checked. `besides_bytes`: bytes that the stream needs in addition.
    """
    limits, tier = select(account, config.num_replicas)
    if config.max_consumers > 0 and 0 < limits.max_consumers < config.max_consumers:
        raise errors.MaximumConsumersLimitError()
    more = config.max_bytes
    taken = reserved(account, config.storage, tier, without=config.name)
    if present is not None:
        more = max(max(config.max_bytes, 0) - max(present.max_bytes, 0), 0)
        taken += max(config.max_bytes - more, 0)
    if more < 0:
        more = 1  # without max_bytes: room for at least one byte
    more += besides_bytes
    of_memory = config.storage == "memory"
    most = limits.max_memory if of_memory else limits.max_storage
    if most >= 0 and taken + more > most:
        raise _RESERVED[config.storage]()
    server = account.settings.max_memory if of_memory else account.settings.max_storage
    if server >= 0 and server_reserved(account, config.storage) + more > server:
        raise _RESERVED[config.storage]()


def check_consumer_count(
    account: JetStreamAccount, stream: StreamConfig, config: ConsumerConfig, present: int
) -> None:
    """Raise 10026 when the stream, or the account's limit for each stream, allows no further
    consumer.
    """
    limits, _ = select(account, config.num_replicas or stream.num_replicas)
    most = stream.max_consumers
    if most <= 0 or 0 < limits.max_consumers < most:
        most = limits.max_consumers
    if 0 < most <= present:
        raise errors.MaximumConsumersLimitError()


def check_held(account: JetStreamAccount, storage: str) -> None:
    """Raise 10028 or 10047 when the account, or the server, holds more bytes than its limit."""
    quota: Quota | None = account.quota(storage)
    while quota is not None:
        if quota.used > quota.limit:
            raise _RESERVED[storage]()
        quota = quota.whole


def reserved(account: JetStreamAccount, storage: str, tier: str, *, without: str = "") -> int:
    """Return the bytes that the account's streams of a kind of storage reserve."""
    total = sum(size for _, size in _counted(account, storage, tier))
    present = account.streams.get(without)
    if present is not None and _matches(_key(present.config), storage, tier):
        total -= max(present.config.max_bytes, 0)
    return total


def count(account: JetStreamAccount, config: StreamConfig, streams: int) -> None:
    """Count a stream of the account with this configuration (1), or no longer (-1): the checks of a
    create must not look at all other streams.
    """
    key = _key(config)
    number, size = account.reserved.get(key, (0, 0))
    account.reserved[key] = number + streams, size + streams * max(config.max_bytes, 0)


def _key(config: StreamConfig) -> tuple[str, str]:
    return config.storage, tier_name(config.num_replicas)


def _matches(key: tuple[str, str], storage: str, tier: str) -> bool:
    return storage in ("", key[0]) and tier in ("", key[1])


def _counted(
    account: JetStreamAccount, storage: str = "", tier: str = ""
) -> Iterator[tuple[int, int]]:
    """Yield (streams, bytes) of each kind of storage and tier; "" is any."""
    for key, counts in account.reserved.items():
        if _matches(key, storage, tier):
            yield counts


def server_reserved(account: JetStreamAccount, storage: str) -> int:
    """Return the bytes that the streams of all accounts of the server reserve."""
    return sum(reserved(each, storage, "") for each in account.everyone)


def apply(account: JetStreamAccount) -> None:
    """Pass the limits of stored bytes to the account's logs. Called when the limits are set or
    change.
    """
    limits = account.limits.get("") or account.limits.get(tier_name(1))
    for quota, most in (
        (account.memory, limits.max_memory if limits else 0),
        (account.storage, limits.max_storage if limits else 0),
    ):
        quota.limit = NO_LIMIT if most < 0 else most


def server_quota(limit: int) -> Quota:
    """Return the quota of a whole server; -1: no limit."""
    return Quota(NO_LIMIT if limit < 0 else limit)


def account_info(account: JetStreamAccount) -> AccountInfo:
    """Return the usage and the limits of the account."""
    info = AccountInfo(
        memory=account.memory.used,
        storage=account.storage.used,
        reserved_memory=reserved(account, "memory", ""),
        reserved_storage=reserved(account, "file", ""),
        streams=len(account.streams),
        consumers=sum(len(entry.consumers) for entry in account.streams.values()),
        domain=account.settings.domain,
        api=ApiStats(
            level=account.settings.api_level, total=account.api_total, errors=account.api_errors
        ),
    )
    if "" in account.limits:
        info.limits = account.limits[""]
        return info
    info.limits = _nothing()
    for tier, limits in account.limits.items():
        info.tiers[tier] = _tier_info(account, tier, limits)
    for entry in account.streams.values():
        tier = tier_name(entry.config.num_replicas)
        if tier not in info.tiers:
            info.tiers[tier] = _tier_info(account, tier, _nothing())
    return info


def _tier_info(account: JetStreamAccount, tier: str, limits: AccountLimits) -> TierInfo:
    info = TierInfo(
        reserved_memory=reserved(account, "memory", tier),
        reserved_storage=reserved(account, "file", tier),
        limits=limits,
    )
    for entry in account.streams.values():
        if tier_name(entry.config.num_replicas) != tier:
            continue
        info.streams += 1
        info.consumers += len(entry.consumers)
        if entry.config.storage == "memory":
            info.memory += entry.core.log.bytes
        else:
            info.storage += entry.core.log.bytes
    return info


def _nothing() -> AccountLimits:
    # the limits of an account without JetStream limits
    return AccountLimits(
        max_memory=0,
        max_storage=0,
        max_streams=0,
        max_consumers=0,
        max_ack_pending=0,
        memory_max_stream_bytes=0,
        storage_max_stream_bytes=0,
    )
