"""Requests and responses of the JetStream API, and the answer to a publish: one class per object.

A response has `type`, then `error` if the call failed, then its own fields. A list that may be null
is declared so. Types only.
"""

from typing import Annotated, ClassVar

from msgspec import Struct, field

from pelton.api.consumers import ConsumerConfig, ConsumerInfo
from pelton.api.errors import ErrorBody
from pelton.api.fields import (
    FLATTEN,
    OMIT,
    ConsumerAction,
    Duration,
    Int,
    Int32,
    Int64,
    Time,
    Uint64,
)
from pelton.api.streams import Placement, StreamConfig, StreamInfo, StreamState

TYPE_PREFIX = "io.nats.jetstream.api.v1."

# -- requests --------------------------------------------------------------------------------------


class EmptyRequest(Struct, kw_only=True):
    """A request without fields."""


class StreamConfigRequest(StreamConfig, kw_only=True):
    """STREAM.CREATE and STREAM.UPDATE."""

    pedantic: Annotated[bool, OMIT] = False


class StreamSnapshotRequest(Struct, kw_only=True):
    """STREAM.SNAPSHOT: where to send the chunks, and how."""

    type_name: ClassVar[str] = "JSApiStreamSnapshotRequest"
    deliver_subject: str = ""
    no_consumers: Annotated[bool, OMIT] = False
    chunk_size: Annotated[Int, OMIT] = 0
    window_size: Annotated[Int, OMIT] = 0
    jsck: Annotated[bool, OMIT] = False


class StreamRestoreRequest(Struct, kw_only=True):
    """STREAM.RESTORE: the stream's configuration and its former state."""

    type_name: ClassVar[str] = "JSApiStreamRestoreRequest"
    config: StreamConfig = field(default_factory=StreamConfig)
    state: StreamState = field(default_factory=StreamState)


class StreamNamesRequest(Struct, kw_only=True):
    """STREAM.NAMES: one page of the streams with the subject."""

    type_name: ClassVar[str] = "JSApiStreamNamesRequest"
    offset: Int = 0
    subject: Annotated[str, OMIT] = ""


class StreamListRequest(Struct, kw_only=True):
    """STREAM.LIST: one page of the streams with the subject."""

    type_name: ClassVar[str] = "JSApiStreamListRequest"
    offset: Int = 0
    subject: Annotated[str, OMIT] = ""


class StreamInfoRequest(Struct, kw_only=True):
    """STREAM.INFO: additions to the state."""

    type_name: ClassVar[str] = "JSApiStreamInfoRequest"
    offset: Annotated[Int, OMIT] = 0
    deleted_details: Annotated[bool, OMIT] = False
    subjects_filter: Annotated[str, OMIT] = ""


class StreamPurgeRequest(Struct, kw_only=True):
    """STREAM.PURGE: which messages; all if nothing is given."""

    type_name: ClassVar[str] = "JSApiStreamPurgeRequest"
    seq: Annotated[Uint64, OMIT] = 0
    filter: Annotated[str, OMIT] = ""
    keep: Annotated[Uint64, OMIT] = 0


class MsgGetRequest(Struct, kw_only=True):
    """STREAM.MSG.GET and DIRECT.GET: which message."""

    type_name: ClassVar[str] = "JSApiMsgGetRequest"
    seq: Annotated[Uint64, OMIT] = 0
    last_by_subj: Annotated[str, OMIT] = ""
    next_by_subj: Annotated[str, OMIT] = ""
    batch: Annotated[Int, OMIT] = 0
    max_bytes: Annotated[Int, OMIT] = 0
    start_time: Annotated[Time | None, OMIT] = None
    multi_last: Annotated[list[str], OMIT] = field(default_factory=list)
    up_to_seq: Annotated[Uint64, OMIT] = 0
    up_to_time: Annotated[Time | None, OMIT] = None
    no_hdr: Annotated[bool, OMIT] = False


class MsgDeleteRequest(Struct, kw_only=True):
    """STREAM.MSG.DELETE: which message, and whether its bytes may stay on the disk."""

    type_name: ClassVar[str] = "JSApiMsgDeleteRequest"
    seq: Uint64 = 0
    no_erase: Annotated[bool, OMIT] = False


class CreateConsumerRequest(Struct, kw_only=True):
    """CONSUMER.CREATE and CONSUMER.DURABLE.CREATE."""

    stream_name: str = ""
    config: ConsumerConfig = field(default_factory=ConsumerConfig)
    action: Annotated[ConsumerAction, OMIT] = ""
    pedantic: Annotated[bool, OMIT] = False


class ConsumersRequest(Struct, kw_only=True):
    """CONSUMER.NAMES and CONSUMER.LIST: one page."""

    type_name: ClassVar[str] = "JSApiConsumersRequest"
    offset: Int = 0


class ConsumerPauseRequest(Struct, kw_only=True):
    """CONSUMER.PAUSE: until when; 0 or a time in the past resumes the consumer."""

    type_name: ClassVar[str] = "JSApiConsumerPauseRequest"
    pause_until: Annotated[Time, OMIT] = 0


class ConsumerUnpinRequest(Struct, kw_only=True):
    """CONSUMER.UNPIN: the group whose client loses its pin."""

    type_name: ClassVar[str] = "JSApiConsumerUnpinRequest"
    group: str = ""


class ConsumerResetRequest(Struct, kw_only=True):
    """CONSUMER.RESET: the sequence to continue with; 0: the ack floor."""

    type_name: ClassVar[str] = "JSApiConsumerResetRequest"
    seq: Annotated[Uint64, OMIT] = 0


class PullRequest(Struct, kw_only=True):
    """CONSUMER.MSG.NEXT: how many messages, for how long.

    The data path reads requests itself; this class finds the fault in those that it cannot read.
    """

    type_name: ClassVar[str] = ""
    expires: Annotated[Duration, OMIT] = 0
    batch: Annotated[Int, OMIT] = 0
    max_bytes: Annotated[Int, OMIT] = 0
    no_wait: Annotated[bool, OMIT] = False
    idle_heartbeat: Annotated[Duration, OMIT] = 0
    group: Annotated[str, OMIT] = ""
    min_pending: Annotated[Int64, OMIT] = 0
    min_ack_pending: Annotated[Int64, OMIT] = 0
    id: Annotated[str, OMIT] = ""
    priority: Annotated[Int, OMIT] = 0


class PeerRemoveRequest(Struct, kw_only=True):
    """STREAM.PEER.REMOVE."""

    peer: str = ""


class LeaderStepDownRequest(Struct, kw_only=True):
    """STREAM.LEADER.STEPDOWN and CONSUMER.LEADER.STEPDOWN."""

    placement: Annotated[Placement | None, OMIT] = None


# -- responses -------------------------------------------------------------------------------------


class Response(Struct, kw_only=True):
    """The common fields of every response."""

    type: str = ""
    error: Annotated[ErrorBody | None, OMIT] = None


class StreamCreateResponse(Response, kw_only=True):
    """Answer to STREAM.CREATE."""

    info: Annotated[StreamInfo | None, FLATTEN] = None
    did_create: Annotated[bool, OMIT] = False


class StreamSnapshotResponse(Response, kw_only=True):
    """Answer to STREAM.SNAPSHOT, before the chunks."""

    config: Annotated[StreamConfig | None, OMIT] = None
    state: Annotated[StreamState | None, OMIT] = None


class StreamRestoreResponse(Response, kw_only=True):
    """Answer to STREAM.RESTORE: where to send the chunks."""

    deliver_subject: str = ""


class StreamUpdateResponse(Response, kw_only=True):
    """Answer to STREAM.UPDATE."""

    info: Annotated[StreamInfo | None, FLATTEN] = None


class StreamInfoResponse(Response, kw_only=True):
    """Answer to STREAM.INFO; paging counts the subjects."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
    info: Annotated[StreamInfo | None, FLATTEN] = None


class StreamNamesResponse(Response, kw_only=True):
    """Answer to STREAM.NAMES."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
    streams: list[str] | None = None


class StreamListResponse(Response, kw_only=True):
    """Answer to STREAM.LIST."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
    streams: list[StreamInfo] | None = None
    missing: Annotated[list[str], OMIT] = field(default_factory=list)
    offline: Annotated[dict[str, str], OMIT] = field(default_factory=dict)


class SuccessResponse(Response, kw_only=True):
    """Answer of the calls that remove something."""

    success: Annotated[bool, OMIT] = False


class StreamPurgeResponse(Response, kw_only=True):
    """Answer to STREAM.PURGE."""

    success: Annotated[bool, OMIT] = False
    purged: Uint64 = 0


class StoredMsg(Struct, kw_only=True):
    """A message in the API: header block and payload as they were published."""

    subject: str = ""
    seq: Uint64 = 0
    hdrs: Annotated[bytes, OMIT] = b""
    data: Annotated[bytes, OMIT] = b""
    time: Time = 0


class MsgGetResponse(Response, kw_only=True):
    """Answer to STREAM.MSG.GET."""

    message: Annotated[StoredMsg | None, OMIT] = None


class ConsumerInfoResponse(Response, kw_only=True):
    """Answer to CONSUMER.CREATE, CONSUMER.DURABLE.CREATE and CONSUMER.INFO."""

    info: Annotated[ConsumerInfo | None, FLATTEN] = None


class ConsumerPauseResponse(Response, kw_only=True):
    """Answer to CONSUMER.PAUSE."""

    paused: bool = False
    pause_until: Time = 0
    pause_remaining: Annotated[Duration, OMIT] = 0


class ConsumerResetResponse(Response, kw_only=True):
    """Answer to CONSUMER.RESET."""

    info: Annotated[ConsumerInfo | None, FLATTEN] = None
    reset_seq: Uint64 = 0


class ConsumerNamesResponse(Response, kw_only=True):
    """Answer to CONSUMER.NAMES."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
    consumers: list[str] | None = field(default_factory=list)


class ConsumerListResponse(Response, kw_only=True):
    """Answer to CONSUMER.LIST."""

    total: Int = 0
    offset: Int = 0
    limit: Int = 0
    consumers: list[ConsumerInfo] | None = field(default_factory=list)
    missing: Annotated[list[str], OMIT] = field(default_factory=list)
    offline: Annotated[dict[str, str], OMIT] = field(default_factory=dict)


# -- account ---------------------------------------------------------------------------------------


class AccountLimits(Struct, kw_only=True):
    """Limits of an account; -1: no limit."""

    max_memory: Int64 = -1
    max_storage: Int64 = -1
    max_streams: Int = -1
    max_consumers: Int = -1
    max_ack_pending: Int = -1
    memory_max_stream_bytes: Int64 = -1
    storage_max_stream_bytes: Int64 = -1
    max_bytes_required: bool = False


class ApiStats(Struct, kw_only=True):
    """Counts of an account's calls."""

    level: Int = 0
    total: Uint64 = 0
    errors: Uint64 = 0
    inflight: Annotated[Uint64, OMIT] = 0


class TierInfo(Struct, kw_only=True):
    """Usage and limits of one replication tier of an account."""

    memory: Uint64 = 0
    storage: Uint64 = 0
    reserved_memory: Uint64 = 0
    reserved_storage: Uint64 = 0
    streams: Int = 0
    consumers: Int = 0
    limits: AccountLimits = field(default_factory=AccountLimits)


class AccountInfo(Struct, kw_only=True):
    """Usage and limits of an account.

    Example::

        account = js.account_info()
        print(account.streams, "streams use", account.storage, "bytes of files")
    """

    memory: Uint64 = 0
    storage: Uint64 = 0
    reserved_memory: Uint64 = 0
    reserved_storage: Uint64 = 0
    streams: Int = 0
    consumers: Int = 0
    limits: AccountLimits = field(default_factory=AccountLimits)
    domain: Annotated[str, OMIT] = ""
    api: ApiStats = field(default_factory=ApiStats)
    tiers: Annotated[dict[str, TierInfo], OMIT] = field(default_factory=dict)


class AccountInfoResponse(Response, kw_only=True):
    """Answer to INFO."""

    info: Annotated[AccountInfo | None, FLATTEN] = None


class ClientInfo(Struct, kw_only=True):
    """The client that made a call, in an advisory."""

    start: Annotated[Time | None, OMIT] = None
    host: Annotated[str, OMIT] = ""
    id: Annotated[Uint64, OMIT] = 0
    acc: Annotated[str, OMIT] = ""
    svc: Annotated[str, OMIT] = ""
    user: Annotated[str, OMIT] = ""
    name: Annotated[str, OMIT] = ""
    lang: Annotated[str, OMIT] = ""
    ver: Annotated[str, OMIT] = ""
    rtt: Annotated[Duration, OMIT] = 0
    server: Annotated[str, OMIT] = ""
    cluster: Annotated[str, OMIT] = ""
    jwt: Annotated[str, OMIT] = ""
    issuer_key: Annotated[str, OMIT] = ""
    name_tag: Annotated[str, OMIT] = ""
    tags: Annotated[list[str] | None, OMIT] = None
    kind: Annotated[str, OMIT] = ""
    client_type: Annotated[str, OMIT] = ""


# -- publish ---------------------------------------------------------------------------------------


class PubAck(Struct, kw_only=True):
    """Answer to a publish: where the message is stored, or the error.

    Example::

        ack = js.publish("orders.new", b"42 bolts", msg_id="order-7")
        print(ack.stream, ack.seq, ack.duplicate)
    """

    error: Annotated[ErrorBody | None, OMIT] = None
    stream: str = ""
    domain: Annotated[str, OMIT] = ""
    seq: Uint64 = 0
    duplicate: Annotated[bool, OMIT] = False
    val: Annotated[str, OMIT] = ""
    batch: Annotated[str, OMIT] = ""
    count: Annotated[Int32, OMIT] = 0
