"""Identity and policies of a server for the engine, and the limits of every account."""

from dataclasses import dataclass

MAX_NAME_LENGTH = 255
MAX_DESCRIPTION_LENGTH = 4096
MAX_METADATA_BYTES = 128 * 1024
NAMES_LIMIT = 1024
LIST_LIMIT = 256
SUBJECTS_LIMIT = 100_000
MAX_SUBJECTS = 5_000
"""Subjects of a stream, and filters of a consumer: what is looked at, put into tries and written
while all other clients wait.
"""
MAX_SUBJECT_TOKENS = 4096  # of one of them: what a trie takes
MAX_TOKENS = 25_000  # of all of them
MAX_ITEMS = 1_000  # sources, their transforms together, backoff times, priority groups, tags
MAX_TRANSFORM_LETTERS = 128 * 1024  # of sources and destinations of all transforms
MAX_STEPS = 300_000  # tokens looked at, to find out whether subjects overlap: some milliseconds
MAX_SEQUENCE = 1 << 62  # a purge beyond it would leave no room for messages
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MIN_WINDOW_NS = 100 * MILLISECOND
DEFAULT_DUPLICATE_WINDOW_NS = 120 * SECOND
DEFAULT_ACK_WAIT_NS = 30 * SECOND
DEFAULT_MAX_ACK_PENDING = 1000
DEFAULT_MAX_WAITING = 512
DEFAULT_INACTIVE_THRESHOLD_NS = 5 * SECOND


@dataclass(frozen=True)
class ServerLimits:
    """What the operator allows one stream or consumer; 0: no limit.

    `max_ha_assets` counts assets with replicas, of which a server alone has none.
    """

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    duplicate_window_ns: int = 0


@dataclass(frozen=True)
class BatchLimits:
    """What publishers of batches may ask for; the counts of fast-ingest batches apply unless one
    of the two `max_inflight` is set, which then holds for either kind.
    """

    max_inflight_per_stream: int = 0  # 0: 50 atomic, 1000 fast-ingest
    max_inflight_total: int = 0  # 0: 1000 atomic, 50,000 fast-ingest
    max_msgs: int = 1000  # of an atomic batch
    max_staged_bytes: int = 256 * 1024 * 1024  # of all atomic batches that are not committed yet
    timeout_ns: int = 10 * SECOND  # without a message of it, a batch is given up


@dataclass(frozen=True)
class Settings:
    """Identity and policies of a server."""

    server_name: str
    server_version: str
    api_level: int = 4
    domain: str = ""
    strict: bool = True  # unknown fields in requests are errors
    sync_interval_ns: int = 0  # file streams: 0: an ack means on disk; else fsync this often
    max_memory: int = -1  # bytes of all memory streams together; -1: no limit
    max_storage: int = -1  # ... of all file streams
    storage_by_disk: bool = (
        False  # max_storage bounds what streams reserve; the disk, what they hold
    )
    limits: ServerLimits = ServerLimits()
    batch: BatchLimits = BatchLimits()
    segment_bytes: int = 16 * 1024 * 1024  # of a log; a new one is begun when it would be larger
    journal_bytes: int = 1024 * 1024  # of acks and consumer states, before they are summed up anew
    server_id: str = ""  # told in advisories about the server


@dataclass(frozen=True)
class StreamCaps:
    """What the limits of server and account mean for one stream; 0: no limit."""

    max_bytes_required: bool = False
    max_bytes: int = 0  # for its kind of storage
    duplicate_window_ns: int = 0


NO_CAPS = StreamCaps()
