"""Identity and policies of a server for the engine, and the limits of every account."""

from msgspec import Struct

from pelton.core.protocol.api_level import API_LEVEL

MAX_NAME_LENGTH = 255
MAX_DESCRIPTION_LENGTH = 4096
MAX_METADATA_BYTES = 128 * 1024
NAMES_LIMIT = 1024
LIST_LIMIT = 256
LIST_STEP = 4  # rows of a list that are made in one step
SUBJECTS_LIMIT = 100_000
MAX_SUBJECTS = 5_000
"""The most subjects of a stream, and filters of a consumer. The limit bounds the work of one
request, since all other clients wait for it.
"""
MAX_SUBJECT_TOKENS = 4096  # tokens of one subject, which the tries can hold
MAX_TOKENS = 25_000  # tokens of all subjects together
MAX_ITEMS = 1_000  # each: sources with their transforms, backoff times, priority groups, tags
MAX_TRANSFORM_LETTERS = 128 * 1024  # letters of the sources and destinations of all transforms
MAX_STEPS = 300_000  # tokens to compare when looking for overlapping subjects: some milliseconds
MAX_SEQUENCE = 1 << 62  # a purge beyond it would leave no sequences for messages
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
MIN_WINDOW_NS = 100 * MILLISECOND
DEFAULT_DUPLICATE_WINDOW_NS = 120 * SECOND
DEFAULT_ACK_WAIT_NS = 30 * SECOND
DEFAULT_MAX_ACK_PENDING = 1000
DEFAULT_MAX_WAITING = 512
DEFAULT_INACTIVE_THRESHOLD_NS = 5 * SECOND


class ServerLimits(Struct, frozen=True):
    """The limits that the operator sets for one stream or consumer; 0: no limit.

    `max_ha_assets` counts streams and consumers with replicas, which a single server does not have.
    """

    max_ack_pending: int = 0
    max_ha_assets: int = 0
    max_request_batch: int = 0
    duplicate_window_ns: int = 0


class BatchLimits(Struct, frozen=True):
    """The limits of batches.

    The two counts of fast-ingest batches have their own defaults; a `max_inflight` that is set
    applies to both kinds of batch.
    """

    max_inflight_per_stream: int = 0  # 0: 50 atomic, 1000 fast-ingest
    max_inflight_total: int = 0  # 0: 1000 atomic, 50,000 fast-ingest
    max_msgs: int = 1000  # messages of an atomic batch
    max_staged_bytes: int = 256 * 1024 * 1024  # bytes of all uncommitted atomic batches
    timeout_ns: int = 10 * SECOND  # a batch without a new message for so long is given up


class Settings(Struct, frozen=True):
    """Identity and policies of a server."""

    server_name: str
    server_version: str
    api_level: int = API_LEVEL
    domain: str = ""
    long_acks: bool = False  # ack and flow-control subjects begin with the domain and the account
    strict: bool = True  # unknown fields in requests are errors
    sync_interval_ns: int = 0  # file streams: 0: PubAcks wait for the fsync; else fsync this often
    max_memory: int = -1  # bytes of all memory streams together; -1: no limit
    max_storage: int = -1  # ... of all file streams
    storage_by_disk: bool = (
        False  # True: max_storage bounds only reservations, and the disk bounds stored bytes
    )
    limits: ServerLimits = ServerLimits()
    batch: BatchLimits = BatchLimits()
    segment_bytes: int = 16 * 1024 * 1024  # size at which a log begins a new segment
    journal_bytes: int = 1024 * 1024  # size at which the ack journal is summed up in a new base
    # bytes kept free on the disk for what removes data and for what is accepted already; 0: none
    reserve_bytes: int = 0
    server_id: str = ""  # named in advisories about the server
    frozen: bool = False  # streams take no messages, nothing expires or is redelivered: for readers


class StreamCaps(Struct, frozen=True):
    """The limits of server and account for one stream; 0: no limit."""

    max_bytes_required: bool = False
    max_bytes: int = 0  # for its kind of storage
    duplicate_window_ns: int = 0


NO_CAPS = StreamCaps()
