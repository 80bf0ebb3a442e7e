"""The table of `$JS.API.` calls: the subject of each call, its request, its response and its handler.

A subject without a row gets no answer, as in the protocol. The server does not receive direct gets
of a stream that does not allow them, so that the requester gets "no responders". The dispatcher, the
API reference and the metrics read this table.
"""

import enum
from collections.abc import Callable, Generator

from msgspec import Struct

from pelton.api.calls import (
    AccountInfoResponse,
    ConsumerInfoResponse,
    ConsumerListResponse,
    ConsumerNamesResponse,
    ConsumerPauseRequest,
    ConsumerPauseResponse,
    ConsumerResetRequest,
    ConsumerResetResponse,
    ConsumersRequest,
    ConsumerUnpinRequest,
    CreateConsumerRequest,
    EmptyRequest,
    LeaderStepDownRequest,
    MsgDeleteRequest,
    MsgGetRequest,
    MsgGetResponse,
    PeerRemoveRequest,
    Response,
    StreamConfigRequest,
    StreamCreateResponse,
    StreamInfoRequest,
    StreamInfoResponse,
    StreamListRequest,
    StreamListResponse,
    StreamNamesRequest,
    StreamNamesResponse,
    StreamPurgeRequest,
    StreamPurgeResponse,
    StreamRestoreRequest,
    StreamRestoreResponse,
    StreamSnapshotRequest,
    StreamSnapshotResponse,
    StreamUpdateResponse,
    SuccessResponse,
)
from pelton.engine.calls import backup_calls, consumer_calls, message_calls, stream_calls


class Body(enum.Enum):
    """How a call reads the body of a request."""

    JSON = "read as JSON; empty is the zero request"
    REQUIRED = "read as JSON; empty or `{}` is refused (10003)"
    OPTIONAL = "read as JSON if it starts with `{` or `[`, otherwise ignored"
    EMPTY = "must be empty or `{}` (10038)"
    IGNORED = "ignored"
    LENIENT = "read as JSON, unknown fields are ignored; empty is the zero request"
    WHOLE = "read as JSON, unknown fields are ignored"


class Call(Struct, frozen=True):
    """One row of the table: `pattern` is the subject behind `$JS.API.`; its wildcards become
    arguments of the handler.
    """

    pattern: str
    # returns None: no answer; a generator: the answer takes several steps
    handler: Callable[..., Response | Generator[None, None, Response | None] | None]
    request: type[Struct]
    response: type[Response]
    type: str
    body: Body
    counted: bool = True  # a success counts in api.total and gets an audit advisory
    later: bool = False  # the handler gets a function for a later answer, and may return None
    grouped: bool = False  # files wait for the end of the turn: engine/files/waiting_files
    replied: bool = False  # a request without a reply subject is ignored
    identity: Callable[..., bytes] | None = None  # (account, request, headers, stream) -> headers


CALLS = (
    Call(
        "INFO",
        stream_calls.account_info,
        EmptyRequest,
        AccountInfoResponse,
        "account_info_response",
        Body.IGNORED,
    ),
    Call(
        "STREAM.CREATE.*",
        stream_calls.create,
        StreamConfigRequest,
        StreamCreateResponse,
        "stream_create_response",
        Body.JSON,
        later=True,
        grouped=True,
    ),
    Call(
        "STREAM.UPDATE.*",
        stream_calls.update,
        StreamConfigRequest,
        StreamUpdateResponse,
        "stream_update_response",
        Body.JSON,
    ),
    Call(
        "STREAM.NAMES",
        stream_calls.names,
        StreamNamesRequest,
        StreamNamesResponse,
        "stream_names_response",
        Body.OPTIONAL,
    ),
    Call(
        "STREAM.LIST",
        stream_calls.list_,
        StreamListRequest,
        StreamListResponse,
        "stream_list_response",
        Body.OPTIONAL,
    ),
    Call(
        "STREAM.INFO.*",
        stream_calls.info,
        StreamInfoRequest,
        StreamInfoResponse,
        "stream_info_response",
        Body.OPTIONAL,
    ),
    Call(
        "STREAM.DELETE.*",
        stream_calls.delete,
        EmptyRequest,
        SuccessResponse,
        "stream_delete_response",
        Body.EMPTY,
    ),
    Call(
        "STREAM.PURGE.*",
        stream_calls.purge,
        StreamPurgeRequest,
        StreamPurgeResponse,
        "stream_purge_response",
        Body.OPTIONAL,
        later=True,
    ),
    Call(
        "STREAM.SNAPSHOT.*",
        backup_calls.snapshot,
        StreamSnapshotRequest,
        StreamSnapshotResponse,
        "stream_snapshot_response",
        Body.REQUIRED,
        later=True,
    ),
    Call(
        "STREAM.RESTORE.*",
        backup_calls.restore,
        StreamRestoreRequest,
        StreamRestoreResponse,
        "stream_restore_response",
        Body.REQUIRED,
    ),
    Call(
        "STREAM.MSG.GET.*",
        message_calls.get,
        MsgGetRequest,
        MsgGetResponse,
        "stream_msg_get_response",
        Body.REQUIRED,
        counted=False,
    ),
    Call(
        "STREAM.MSG.DELETE.*",
        message_calls.delete,
        MsgDeleteRequest,
        SuccessResponse,
        "stream_msg_delete_response",
        Body.REQUIRED,
        later=True,
    ),
    Call(
        "STREAM.LEADER.STEPDOWN.*",
        stream_calls.clustered_only,
        LeaderStepDownRequest,
        SuccessResponse,
        "stream_leader_stepdown_response",
        Body.IGNORED,
    ),
    Call(
        "STREAM.PEER.REMOVE.*",
        stream_calls.clustered_only,
        PeerRemoveRequest,
        SuccessResponse,
        "stream_remove_peer_response",
        Body.IGNORED,
    ),
    Call(
        "STREAM.PEER.EVACUATE.*",
        stream_calls.clustered_only,
        PeerRemoveRequest,
        SuccessResponse,
        "stream_evacuate_peer_response",
        Body.IGNORED,
    ),
    Call(
        "STREAM.CANCEL_MOVE.*",
        stream_calls.clustered_only,
        EmptyRequest,
        SuccessResponse,
        "stream_cancel_move_response",
        Body.IGNORED,
    ),
    Call(
        "CONSUMER.CREATE.*",
        consumer_calls.create,
        CreateConsumerRequest,
        ConsumerInfoResponse,
        "consumer_create_response",
        Body.JSON,
        later=True,
        grouped=True,
        identity=consumer_calls.identity_for_readers,
    ),
    Call(
        "CONSUMER.CREATE.*.*",
        consumer_calls.create,
        CreateConsumerRequest,
        ConsumerInfoResponse,
        "consumer_create_response",
        Body.JSON,
        later=True,
        grouped=True,
        identity=consumer_calls.identity_for_readers,
    ),
    Call(
        "CONSUMER.CREATE.*.*.>",
        consumer_calls.create,
        CreateConsumerRequest,
        ConsumerInfoResponse,
        "consumer_create_response",
        Body.JSON,
        later=True,
        grouped=True,
        identity=consumer_calls.identity_for_readers,
    ),
    Call(
        "CONSUMER.DURABLE.CREATE.*.*",
        consumer_calls.create_durable,
        CreateConsumerRequest,
        ConsumerInfoResponse,
        "consumer_create_response",
        Body.JSON,
        later=True,
        grouped=True,
        identity=consumer_calls.identity_for_readers,
    ),
    Call(
        "CONSUMER.NAMES.*",
        consumer_calls.names,
        ConsumersRequest,
        ConsumerNamesResponse,
        "consumer_names_response",
        Body.OPTIONAL,
    ),
    Call(
        "CONSUMER.LIST.*",
        consumer_calls.list_,
        ConsumersRequest,
        ConsumerListResponse,
        "consumer_list_response",
        Body.OPTIONAL,
    ),
    Call(
        "CONSUMER.INFO.*.*",
        consumer_calls.info,
        EmptyRequest,
        ConsumerInfoResponse,
        "consumer_info_response",
        Body.EMPTY,
    ),
    Call(
        "CONSUMER.DELETE.*.*",
        consumer_calls.delete,
        EmptyRequest,
        SuccessResponse,
        "consumer_delete_response",
        Body.EMPTY,
        later=True,
        grouped=True,
    ),
    Call(
        "CONSUMER.PAUSE.*.*",
        consumer_calls.pause,
        ConsumerPauseRequest,
        ConsumerPauseResponse,
        "consumer_pause_response",
        Body.OPTIONAL,
    ),
    Call(
        "CONSUMER.UNPIN.*.*",
        consumer_calls.unpin,
        ConsumerUnpinRequest,
        Response,
        "consumer_unpin_response",
        Body.WHOLE,
    ),
    Call(
        "CONSUMER.RESET.*.*",
        consumer_calls.reset,
        ConsumerResetRequest,
        ConsumerResetResponse,
        "consumer_reset_response",
        Body.LENIENT,
        counted=False,
        replied=True,
        identity=consumer_calls.identity_if_asked,
    ),
    Call(
        "CONSUMER.LEADER.STEPDOWN.*.*",
        consumer_calls.step_down,
        LeaderStepDownRequest,
        SuccessResponse,
        "consumer_leader_stepdown_response",
        Body.IGNORED,
    ),
)
