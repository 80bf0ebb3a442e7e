"""Messages, subjects and errors of the JetStream API, shared by server and client.

`codec` writes and reads the messages as JSON, `subjects` builds and parses the subjects, and every
API error has a class.
"""

from pelton.api import errors_generated
from pelton.api.calls import (
    AccountInfo,
    AccountLimits,
    ApiStats,
    PubAck,
    StoredMsg,
)
from pelton.api.codec import JsonError, decode_request, decode_response, encode
from pelton.api.consumers import ConsumerConfig, ConsumerInfo, SequenceInfo
from pelton.api.errors import ApiError, ErrorBody, error_from
from pelton.api.streams import (
    Placement,
    Republish,
    StreamConfig,
    StreamConsumerLimits,
    StreamInfo,
    StreamSource,
    StreamState,
    SubjectTransform,
)
from pelton.core.protocol.api_level import API_LEVEL

__all__ = [
    "API_LEVEL",
    "AccountInfo",
    "AccountLimits",
    "ApiError",
    "ApiStats",
    "ConsumerConfig",
    "ConsumerInfo",
    "ErrorBody",
    "JsonError",
    "Placement",
    "PubAck",
    "Republish",
    "SequenceInfo",
    "StoredMsg",
    "StreamConfig",
    "StreamConsumerLimits",
    "StreamInfo",
    "StreamSource",
    "StreamState",
    "SubjectTransform",
    "decode_request",
    "decode_response",
    "encode",
    "error_from",
    "errors_generated",
]
