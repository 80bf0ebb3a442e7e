"""The values of object stores: configuration, status, properties of an object, and their JSON."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypedDict, get_args

import msgspec

from pelton.api.fields import Storage
from pelton.api.streams import SERVERS_OWN
from pelton.api.times import ZERO_TIME
from pelton.errors import (
    BucketExistsError,
    BucketNotFoundError,
    ObjectDamagedError,
    StreamExistsError,
    StreamNotFoundError,
)

from ..base.arguments import refuse
from ..base.durations import Duration, Nanoseconds, to_nanoseconds
from ..base.message import Headers
from ..base.models import (
    Placement,  # get_type_hints looks for it here
    StreamConfig,
    StreamInfo,
    bucket_summary,
)

if TYPE_CHECKING:
    from ..base.message import HeadersLike

STREAM_PREFIX = "OBJ_"
# The default of ADR-20, for all clients.
CHUNK_BYTES = 128 * 1024
DIGEST_PREFIX = "SHA-256="
NAME_BYTES_MAX = 2048
"""A longer name would not fit on a line of the protocol."""

_BUCKET = re.compile(r"[A-Za-z0-9_-]{1,251}")  # a stream's name has 255 characters at most


def stream_of(bucket: str) -> str:
    """The stream of a bucket; ValueError for a name that no bucket can have."""
    if not isinstance(bucket, str):
        refuse("bucket", "text", bucket)
    if _BUCKET.fullmatch(bucket) is None:
        raise ValueError(
            f"bucket name {bucket!r}: expected 1 to 251 letters, digits, underscores and hyphens"
        )
    return STREAM_PREFIX + bucket


@contextmanager
def of_bucket(bucket: str) -> Iterator[None]:
    """Errors about the stream of a bucket name the bucket."""
    try:
        yield
    except StreamNotFoundError:
        raise BucketNotFoundError(bucket) from None
    except StreamExistsError:
        raise BucketExistsError(bucket) from None


def meta_subject(bucket: str, name: str) -> str:
    """The subject of an object's properties; ValueError for a name that no object can have."""
    if not isinstance(name, str):
        refuse("name", "text", name)
    raw = name.encode()
    if not 0 < len(raw) <= NAME_BYTES_MAX:
        raise ValueError(
            f"an object's name has 1 to {NAME_BYTES_MAX} bytes of UTF-8, this one has {len(raw)}"
        )
    # With padding, as other clients have it: an object is found by this subject alone.
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(raw).decode()}"


def chunk_subject(bucket: str, nuid: str) -> str:
    """The subject of an object's chunks."""
    return f"$O.{bucket}.C.{nuid}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStoreConfig:
    """The configuration of an object store. Only ``bucket`` is needed.

    Example::

        js.create_object_store(ObjectStoreConfig(bucket="drafts", ttl="720h", compression=True))

    Raises ValueError and TypeError with the field's name.

    bucket: letters, digits, underscores and hyphens.
    description: what the bucket is for.
    ttl: how long objects are kept (a duration); 0 for ever.
    max_bytes: bytes of the bucket at most; a put beyond that is refused; 0 or -1 for no limit.
    storage: "file" or "memory".
    replicas: copies in a cluster, 1 to 5.
    placement: where in a cluster the bucket should live.
    compression: whether the server compresses the bucket on its disk.
    metadata: any names and values.

    Example: ``ObjectStoreConfig(bucket="reports", ttl="720h", max_bytes=10 * 2**30)``
    """

    bucket: str
    description: str = ""
    ttl: Duration = 0
    max_bytes: int = 0
    storage: Storage = "file"
    replicas: int = 1
    placement: Placement | None = None
    compression: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the fields."""
        stream_of(self.bucket)
        try:
            to_nanoseconds(self.ttl)
        except (ValueError, TypeError) as error:
            raise type(error)(f"ttl: {error}") from None
        if self.storage not in get_args(get_args(Storage)[0]):
            raise ValueError(f'storage: expected "file" or "memory", not {self.storage!r}')
        if not 1 <= self.replicas <= 5:
            raise ValueError(f"replicas: expected 1 to 5, not {self.replicas!r}")
        if self.max_bytes < -1:
            raise ValueError(f"max_bytes: expected a number of bytes, not {self.max_bytes!r}")
        check_metadata(self.metadata)

    def on(self, config: StreamConfig) -> StreamConfig:
        """The configuration of the bucket's stream with these values; ``config`` has all others."""
        return msgspec.structs.replace(
            config,
            name=stream_of(self.bucket),
            description=self.description,
            subjects=[f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
            max_age=to_nanoseconds(self.ttl),
            max_bytes=self.max_bytes or -1,
            storage=self.storage,
            num_replicas=self.replicas,
            placement=self.placement,
            compression="s2" if self.compression else "none",
            # To discard old messages would take chunks out of objects.
            discard="new",
            # The properties of an object replace those before.
            allow_rollup_hdrs=True,
            allow_direct=True,
            metadata={**_servers_own(config.metadata), **self.metadata},
        )


class ObjectStoreFields(TypedDict, total=False):
    """The fields of ``ObjectStoreConfig`` but ``bucket``, as keywords of ``create_object_store``.

    Example::

        fields: ObjectStoreFields = {"ttl": "720h", "max_bytes": 10 * 2**30}
        js.create_object_store("drafts", **fields)
    """

    description: str
    ttl: Duration
    max_bytes: int
    storage: Storage
    replicas: int
    placement: Placement | None
    compression: bool
    metadata: Mapping[str, str]


def _servers_own(metadata: Mapping[str, str]) -> dict[str, str]:
    # Kept in an update, because they are not the user's to change.
    return {name: value for name, value in metadata.items() if name.startswith(SERVERS_OWN)}


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectStoreStatus:
    """The state of an object store.

    Example::

        status = store.status()
        print(status)  # reports: 4096 bytes of 1000000, file, sealed
        print(status.bucket, status.size, status.sealed)

    bucket: its name.
    description: what it is for.
    ttl: how long objects are kept, nanoseconds; 0 for ever.
    max_bytes: bytes at most; -1 for no limit.
    storage: "file" or "memory".
    replicas: copies in a cluster.
    sealed: whether nothing can be changed any more.
    compressed: whether the server compresses it on its disk.
    size: bytes of all chunks and properties.
    metadata: any names and values.
    stream_info: the info of the stream that holds it.
    """

    bucket: str
    description: str
    ttl: Nanoseconds
    max_bytes: int
    storage: str
    replicas: int
    sealed: bool
    compressed: bool
    size: int
    metadata: Mapping[str, str]
    stream_info: StreamInfo

    def __str__(self) -> str:
        """The bucket in one line: what it holds, and its limits."""
        marks = (("compressed", self.compressed), ("sealed", self.sealed))
        return bucket_summary(
            self.bucket,
            size=self.size,
            ttl_ns=self.ttl,
            max_bytes=self.max_bytes,
            storage=self.storage,
            replicas=self.replicas,
            marks=tuple(mark for mark, has in marks if has),
        )

    def __repr__(self) -> str:
        """The same; ``stream_info`` has the rest."""
        return f"<ObjectStoreStatus {self}>"


def status_of(info: StreamInfo) -> ObjectStoreStatus:
    """The status of the bucket that a stream holds."""
    config = info.config
    return ObjectStoreStatus(
        bucket=config.name.removeprefix(STREAM_PREFIX),
        description=config.description,
        ttl=config.max_age,
        max_bytes=config.max_bytes,
        storage=config.storage,
        replicas=config.num_replicas,
        sealed=config.sealed,
        compressed=config.compression != "none",
        size=info.state.bytes,
        metadata=config.metadata,
        stream_info=info,
    )


@dataclass(frozen=True, slots=True)
class ObjectLink:
    """The target of a link: an object, or with ``name`` "" a whole bucket.

    Example::

        store.put("july", b"bytes")
        print(store.add_link("newest", store.info("july")).link)
    """

    bucket: str
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectInfo:
    """The properties of an object, or of a link.

    Example::

        info = store.put("july", b"bytes", metadata={"by": "anna"})
        print(info.size, info.digest, dict(info.metadata))

    name: the object's name.
    bucket: the bucket that holds it.
    nuid: the id of its chunks.
    size: its bytes.
    chunks: the number of its chunks.
    digest: "SHA-256=" and the hash as base64url.
    description, headers, metadata: what its writer gave.
    chunk_size: the bytes of each chunk but the last; 0 when the writer did not say.
    link: the target, when it is a link.
    deleted: whether only this message about it is left.
    mtime_ns: when it was stored, nanoseconds since 1970 UTC; 0 in the answer of a put or a link,
        because the server sets it.
    """

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    description: str = ""
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    chunk_size: int = 0
    link: ObjectLink | None = None
    deleted: bool = False
    mtime_ns: int = 0


class _Link(msgspec.Struct):
    bucket: str = ""
    name: str | None = None


class _Options(msgspec.Struct):
    link: _Link | None = None
    max_chunk_size: int | None = None


class _Meta(msgspec.Struct):
    name: str
    bucket: str | None = None
    nuid: str | None = None
    size: int | None = None
    chunks: int | None = None
    digest: str | None = None
    description: str | None = None
    headers: dict[str, list[str]] | None = None
    metadata: dict[str, str] | None = None
    options: _Options | None = None
    deleted: bool | None = None


_decoder = msgspec.json.Decoder(_Meta)


def encode_meta(info: ObjectInfo) -> bytes:
    """The JSON of an object's properties, with the fields and the order of nats.go."""
    body: dict[str, object] = {"name": info.name}
    if info.description:
        body["description"] = info.description
    if info.headers:
        body["headers"] = info.headers
    if info.metadata:
        body["metadata"] = info.metadata
    options: dict[str, object] = {}
    if info.link is not None:
        link = {"bucket": info.link.bucket}
        options["link"] = {**link, "name": info.link.name} if info.link.name else link
    if info.chunk_size:
        options["max_chunk_size"] = info.chunk_size
    if options:
        body["options"] = options
    body |= {
        "bucket": info.bucket,
        "nuid": info.nuid,
        "size": info.size,
        "mtime": ZERO_TIME,
    }  # readers take the message's time
    body["chunks"] = info.chunks
    if info.digest:
        body["digest"] = info.digest
    if info.deleted:
        body["deleted"] = True
    return msgspec.json.encode(body)


def decode_meta(data: bytes, bucket: str, mtime_ns: int) -> ObjectInfo:
    """The properties in a message; ObjectDamagedError when it is not such a message."""
    try:
        meta = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ObjectDamagedError(
            f"a message in bucket {bucket!r} does not describe an object: {error}"
        ) from None
    options = meta.options or _Options()
    link = options.link
    return ObjectInfo(
        name=meta.name,
        # Fields may be missing or null: each client leaves out others.
        bucket=meta.bucket or bucket,
        nuid=meta.nuid or "",
        size=meta.size or 0,
        chunks=meta.chunks or 0,
        digest=meta.digest or "",
        description=meta.description or "",
        headers=meta.headers or {},
        metadata=meta.metadata or {},
        chunk_size=options.max_chunk_size or 0,
        link=ObjectLink(link.bucket, link.name or "") if link is not None else None,
        deleted=bool(meta.deleted),
        mtime_ns=mtime_ns,
    )


def digest_text(digest: bytes) -> str:
    """The digest as it stands in an object's properties."""
    return DIGEST_PREFIX + base64.urlsafe_b64encode(digest).decode()


def same_digest(text: str, digest: bytes) -> bool:
    """Whether the text stands for this digest, with or without padding."""
    kind, found, value = text.partition("=")
    if not found or kind.upper() != "SHA-256":
        return False
    return value.rstrip("=") == base64.urlsafe_b64encode(digest).decode().rstrip("=")


def check_properties(
    info: ObjectInfo,
    *,
    description: str | None = None,
    headers: HeadersLike | None = None,
    metadata: Mapping[str, str] | None = None,
) -> ObjectInfo:
    """The properties with these changes, None for none; TypeError for what is not text."""
    if description is None:
        description = info.description
    elif not isinstance(description, str):
        refuse("description", "text", description)
    return replace(
        info,
        description=description,
        headers=info.headers if headers is None else _checked_headers(headers),
        metadata=info.metadata if metadata is None else check_metadata(metadata),
    )


def _checked_headers(headers: HeadersLike) -> dict[str, list[str]]:
    """Headers in the form of the JSON."""
    if not isinstance(headers, Mapping):
        refuse("headers", "a mapping from names to text, or to several texts", headers)
    if isinstance(headers, Headers):
        return headers.lists()
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        if not isinstance(value, str | Iterable):
            raise TypeError(f"headers: the values of {name!r} must be text, not {value!r}")
        values = [value] if isinstance(value, str) else list(value)
        if not isinstance(name, str) or not all(isinstance(each, str) for each in values):
            raise TypeError(f"headers: {name!r} and its values must be text, not {value!r}")
        found[name] = values
    return found


def check_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Metadata as a dict; TypeError for what is not text."""
    if not isinstance(metadata, Mapping):
        refuse("metadata", "a mapping from names to text", metadata)
    for name, value in metadata.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"metadata: {name!r} and its value must be text, not {value!r}")
    return dict(metadata)


def check_chunk_size(chunk_size: int | None, max_payload: int) -> int:
    """The bytes of a chunk: as given, or 128 KiB, or less when the server takes less.

    ValueError and TypeError for a size that no message can have.
    """
    room = max(1, max_payload - 128)  # for the header with the message id
    if chunk_size is None:
        return min(CHUNK_BYTES, room)
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int):
        refuse("chunk_size", "a whole number of bytes", chunk_size)
    if not 1 <= chunk_size <= room:
        raise ValueError(f"chunk_size: this server takes 1 to {room} bytes, not {chunk_size}")
    return chunk_size
