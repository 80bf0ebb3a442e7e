"""The event bus of the plgd hub: its events decoded, made, published, stored and served.

::

    bytes ──► codec.decode ──► Event             one event          subjects  parse, build, filters
          └─► columns.decode_batch ──► Table     many, as columns   ids       owners, hrefs, aggregates
    bus    publish, subscribe               store   aggregates, outbox
    fleet  a made-up fleet and its truth                            content   CBOR, JSON, text
    projection  the state of an aggregate                           wire      protobuf messages
    gateway     the hub's gRPC calls, served and asked    reconcile  events that the stream lacks, and their repair

`bus`, `store`, `gateway` and `reconcile` are imported by their names. The functions that this
package exports open no connection::

    event = decode(subject, payload)              # raises UndecodableEventError: .reason, .detail
    event.message, event.version, event.href, event.content_value()
    table = decode_batch(subjects, payloads)      # one row for each message, column `error` or null
    encoded = encode(message, owner="a")          # .subject, .payload, .message_id

The extra ``plgd`` installs what this package needs. Times are ns since 1970.
"""

from pelton.errors import not_installed

try:
    from .codec import Encoded, Event, decode, encode, encode_registration
    from .columns import SCHEMA, decode_batch
    from .content import content_json, decode_content
except ModuleNotFoundError as problem:
    raise not_installed(problem, "plgd") from None
from .ids import aggregate_id, href_id, links_id, metadata_id, owner_id, services_id
from .kinds import EVENT_TYPES, Kind
from .reasons import Reason, UndecodableEventError
from .subjects import Era, LeadType, Subject, named_filter, parse_subject

__all__ = [
    "EVENT_TYPES",
    "SCHEMA",
    "Encoded",
    "Era",
    "Event",
    "Kind",
    "LeadType",
    "Reason",
    "Subject",
    "UndecodableEventError",
    "aggregate_id",
    "content_json",
    "decode",
    "decode_batch",
    "decode_content",
    "encode",
    "encode_registration",
    "href_id",
    "links_id",
    "metadata_id",
    "named_filter",
    "owner_id",
    "parse_subject",
    "services_id",
]
