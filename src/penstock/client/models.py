"""The JSON messages of JetStream that the client speaks of: the one place that says where they come
from.
"""

from penstock.api import AccountInfo, ConsumerConfig, ConsumerInfo, PubAck, StreamConfig, StreamInfo
from penstock.api.subjects import AckSubject as Metadata

__all__ = [
    "AccountInfo",
    "ConsumerConfig",
    "ConsumerInfo",
    "Metadata",
    "PubAck",
    "StreamConfig",
    "StreamInfo",
]
