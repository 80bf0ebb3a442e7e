"""Sources and sinks as datasets of OpenLineage: a namespace and a name.

OpenLineage's naming has no rule for NATS. Streams are named after the rule for Kafka, whose topics are
``kafka://host:port`` and the topic::

    stream ORDERS                nats://host:4222         ORDERS
    bucket names                 nats://host:4222         KV_names (its stream)
    table in a folder            file                     /srv/tables/orders
    table in an object store     s3://warehouse           tables/orders

Does not import OpenLineage.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from pelton.api.keyvalue import stream_of
from pelton.pipeline.description.model import ICEBERG

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.pipeline.description.model import Sink, Source

_PORT = 4222
_OTHER_SCHEMES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}


class Dataset(NamedTuple):
    """A dataset by its names."""

    namespace: str
    name: str


def read_by(source: Source) -> list[Dataset]:
    """The datasets that a source reads."""
    options = _folded(source.options)
    if source.format == "jetstream" and "stream" in options:
        names = [each.strip() for each in options["stream"].split(",")]
        return [Dataset(_nats(options), name) for name in names if name]
    return [_dataset(source.format, options)]


def written_by(sink: Sink) -> Dataset:
    """The dataset that a sink writes."""
    if sink.upsert is not None:
        return placed(sink.upsert.path)
    return _dataset(sink.format or "", _folded(sink.options))


def _dataset(format_name: str, options: Mapping[str, str]) -> Dataset:
    if format_name == "jetstream":
        named = (options.get(key) for key in ("stream", "streampattern", "subject"))
        return Dataset(_nats(options), next(filter(None, named), "unknown"))
    if format_name in ("jetstream_kv", "jetstream_object"):
        bucket = options.get("bucket", "unknown")
        name = stream_of(bucket) if format_name == "jetstream_kv" else f"OBJ_{bucket}"
        return Dataset(_nats(options), name)
    if format_name == ICEBERG:
        catalog = options.get("catalog.uri") or options.get("catalog.warehouse") or ""
        parts = urlsplit(catalog)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.scheme else "iceberg"
        return Dataset(where, options.get("table", "unknown"))
    if "path" in options:
        return placed(options["path"])
    return Dataset(
        format_name or "unknown", options.get("topic") or options.get("table") or "unknown"
    )


def placed(place: str) -> Dataset:
    """The dataset of a folder or a URL."""
    scheme, separator, rest = place.partition("://")
    if scheme == "file" or not separator:
        path = unquote(urlsplit(place).path) if place.startswith("file:") else place
        return Dataset("file", path.rstrip("/") or "/")
    scheme = _OTHER_SCHEMES.get(scheme.lower(), scheme.lower())
    bucket, _, path = rest.partition("/")
    return Dataset(f"{scheme}://{bucket}", path.strip("/") or "/")


def _nats(options: Mapping[str, str]) -> str:
    """The first server, without credentials."""
    first = options.get("servers", "127.0.0.1").split(",")[0].strip()
    where = re.sub(r"^\w+://", "", first).rpartition("@")[2].rstrip("/")
    port = "" if re.search(r":\d+$", where) else f":{_PORT}"
    return f"nats://{where}{port}"


def _folded(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in options.items()}
