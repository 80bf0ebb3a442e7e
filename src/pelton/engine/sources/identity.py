"""The names of a stream's sources and their changes of subjects: plain functions of the
configuration.

Several sources of one stream may have the same origin with different filters; the index name tells
them apart, in memory, in files, and in the header `Nats-Stream-Source`:

    <name>[:<hash of external.api>][:C=<hash of consumer.name>] <filter> <destination>
"""

from collections.abc import Callable

from pelton.api.streams import StreamSource
from pelton.engine.base.hashes import short_hash
from pelton.engine.base.steps import Pace, Steps
from pelton.engine.base.transforms import Random, parse, units

_SEVERAL = "\f"  # between the filters of several transforms
ALL = ">"


def index_name(source: StreamSource) -> str:
    """Return the index name: origin, filter and destination, three words without blanks."""
    name = source.name
    if source.external is not None:
        name += f":{short_hash(source.external.api)}"
    if source.consumer is not None:
        name += f":C={short_hash(source.consumer.name)}"
    if source.subject_transforms:
        src = _SEVERAL.join(each.src or ALL for each in source.subject_transforms)
        dest = _SEVERAL.join(each.dest or ALL for each in source.subject_transforms)
    else:
        src, dest = source.filter_subject or ALL, ALL
    return f"{name} {src} {dest}"


def header_parts(name_of_source: str) -> tuple[bytes, bytes]:
    """Return the value of `Nats-Stream-Source` for an index name before and after the sequence; the
    subject follows.
    """
    name, src, dest = name_of_source.split(" ")
    return (
        f"{name} ".encode("utf-8", "surrogateescape"),
        f" {src} {dest} ".encode("utf-8", "surrogateescape"),
    )


def filters(source: StreamSource) -> tuple[str, ...]:
    """Return the filters of a source; () is everything."""
    if source.subject_transforms:
        return tuple(each.src or ALL for each in source.subject_transforms)
    return (source.filter_subject,) if source.filter_subject else ()


def renaming(
    source: StreamSource, random: Random, pace: Pace
) -> Steps[Callable[[str], str] | None]:
    """Return, after some steps, the function that transforms a subject: the first matching transform
    decides. None: there is no transform.
    """
    transforms = []
    for each in source.subject_transforms:
        if each.dest:
            transforms.append(parse(each.src, each.dest, random))
            if pace.over(units(each.src, each.dest)):
                yield
    if not transforms:
        return None

    def rename(subject: str) -> str:
        for transform in transforms:
            found = transform.apply(subject)
            if found is not None:
                return found
        return subject

    return rename
