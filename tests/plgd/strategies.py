"""Random messages of the hub, of every event type, for properties."""

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from hypothesis import strategies as st

from pelton.plgd import EVENT_TYPES, Kind

DEVICES = st.uuids(version=4).map(str)
HREFS = st.sampled_from(["/light/1", "/oic/d", "/a b", "/ü"])
PUBLISHED = sorted(t for t, kind in EVENT_TYPES.items() if kind.kind is not Kind.SERVICES)
NUMBERS = {
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_INT32: st.integers(-1, 10_000),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=20),
    FieldDescriptor.TYPE_STRING: st.text(max_size=8),
}


def values(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values of one item of a field, messages as mappings."""
    if field.name == "href":
        return HREFS
    if field.name == "device_id":
        return DEVICES
    if field.type == FieldDescriptor.TYPE_ENUM:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_MESSAGE:
        return mappings(field.message_type)
    return NUMBERS[field.type]


def of_field(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    """Values of a field: one, a list, or a map."""
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return st.dictionaries(
            st.text(max_size=4), values(kind.fields_by_name["value"]), max_size=2
        )
    return st.lists(values(field), max_size=2) if field.is_repeated else values(field)


def mappings(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of the fields of a message; of a oneof at most one field."""
    single = {f.name: of_field(f) for f in descriptor.fields if f.containing_oneof is None}
    chosen = [{f.name: of_field(f)} for o in descriptor.oneofs for f in o.fields]
    one = st.fixed_dictionaries(single)
    if not chosen:
        return one
    return st.builds(
        lambda a, b: a | b, one, st.one_of(st.just({}), *map(st.fixed_dictionaries, chosen))
    )


@st.composite
def messages(draw: st.DrawFn, names: st.SearchStrategy[str] | None = None) -> Any:
    """A message of any event type that the hub publishes."""
    event_type = EVENT_TYPES[draw(names if names is not None else st.sampled_from(PUBLISHED))]
    return event_type.message(**draw(mappings(event_type.message.DESCRIPTOR)))
