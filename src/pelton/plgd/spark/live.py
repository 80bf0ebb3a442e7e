"""Twins as a key-value bucket: the twins that a batch changed are put into a bucket that
applications watch.

The key is the device and the id of the path, the value JSON::

    twins    8b3e...c1.78baefb2-...    {"href": "/light/1", "version": 7, "present": true, "content": {...}, ...}

This happens after the commits of a batch. After an interruption the batch runs again, changes no
table, and puts the same twins again: a watcher may see a version twice, but never one that no table
has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pelton.spark.tables.rows import read_files

from ..ids import href_id
from ..tables.schemas import TWIN_LATEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pelton.client.sync import Client

    from .lake import Lake

BUCKET = "twins"
READ_ROWS = 32 * 1024


def changed_twins(lake: Lake, first_seq: int) -> Iterator[dict[str, Any]]:
    """The twins that messages from a sequence on have set."""
    import pyarrow.compute as pc

    place = lake.places[TWIN_LATEST.name]
    for rows in read_files(place, lake.files(TWIN_LATEST.name), TWIN_LATEST.schema, READ_ROWS):
        yield from rows.filter(pc.greater_equal(rows["seq"], first_seq)).to_pylist()


def key_of(twin: dict[str, Any]) -> str:
    """The key of a twin."""
    return f"{twin['device_id']}.{href_id(twin['href'])}"


def value_of(twin: dict[str, Any]) -> bytes:
    """The value of a twin."""
    told: dict[str, Any] = {
        "href": twin["href"],
        "incarnation": twin["incarnation"],
        "version": twin["version"],
        "time": twin["time"],
        "present": twin["is_present"],
        "types": twin["resource_types"] or [],
        "content": None,
    }
    if twin["content_json"] is not None:
        told["content"] = msgspec.Raw(twin["content_json"].encode())
    return msgspec.json.encode(told)


def put_twins(client: Client, lake: Lake, first_seq: int, bucket: str = BUCKET) -> int:
    """Put the twins that a batch from a sequence on changed into a bucket that is there; how many."""
    count, js = 0, client.jetstream()
    subject_of = js.key_value(bucket)._keyspace.write_subject  # another one in another domain
    with js.publisher() as publisher:
        for twin in changed_twins(lake, first_seq):
            publisher.publish(subject_of(key_of(twin)), value_of(twin))
            count += 1
    return count
