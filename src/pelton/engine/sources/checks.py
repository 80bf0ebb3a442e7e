"""The checks of a mirror or of sources in a configuration, in the order of the protocol.

`check_mirror` and `check_sources` read the configuration alone; `check_neighbours` also reads the
streams of this server that the configuration names.
"""

from collections import deque
from collections.abc import Callable, Iterable

from pelton.api import errors_generated as errors
from pelton.api.streams import ExternalStream, StreamConfig, StreamSource
from pelton.api.subjects import API_PREFIX, valid_name
from pelton.core.protocol.subjects import collide
from pelton.engine.base import transforms
from pelton.engine.base.settings import MAX_ITEMS, MAX_TRANSFORM_LETTERS
from pelton.engine.base.steps import Pace, Steps
from pelton.engine.base.subject_checks import check_size, is_literal, is_valid, nested, overlap
from pelton.engine.sources.identity import index_name

Find = Callable[[str], StreamConfig | None]
Invalid = errors.StreamInvalidConfigError
# comparisons of prefixes with subjects, or of sources of origins: some milliseconds
_MAX_LOOKS = 20_000
_SOURCE_UNITS = 10  # of work: see engine/base/steps


def check_size_of(config: StreamConfig) -> None:
    """Raise 10052 for too many sources or transforms, or for too long subjects in them."""
    sources = [each for each in config.sources if isinstance(each, StreamSource)]
    if config.mirror is not None:
        sources.append(config.mirror)
    if len(config.sources) > MAX_ITEMS:
        raise Invalid(f"too many sources, maximum allowed is {MAX_ITEMS}")
    made = [each for source in sources for each in source.subject_transforms]
    if config.subject_transform is not None:
        made.append(config.subject_transform)
    if len(made) > MAX_ITEMS:
        raise Invalid(f"too many subject transforms, maximum allowed is {MAX_ITEMS}")
    check_size([source.filter_subject for source in sources], "source filter")
    texts = [text for each in made for text in (each.src, each.dest)]
    if config.republish is not None:
        texts += [config.republish.src, config.republish.dest]
    check_size(texts, "subject transform")
    if sum(map(len, texts)) > MAX_TRANSFORM_LETTERS:
        most = MAX_TRANSFORM_LETTERS
        raise Invalid(f"subject transforms are too long, maximum allowed is {most}")


def check_mirror(config: StreamConfig, mirror: StreamSource) -> Steps[None]:
    """Check a mirror without regard to other streams, in steps. Raises ApiError."""
    _check_mirror_alone(config)
    if mirror.consumer is not None and not _good_consumer(mirror):
        raise errors.MirrorDurableConsumerCfgInvalidError()
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MirrorMultipleFiltersNotAllowedError()
    if config.subject_delete_marker_ttl > 0:
        raise Invalid("subject delete markers forbidden on mirrors")
    wanted = mirror.subject_transforms
    crossing = overlap([transform.src or ">" for transform in wanted])
    pace = Pace()
    for number, transform in enumerate(wanted):
        if pace.over(transforms.units(transform.src, transform.dest)):
            yield
        if transform.src and not is_valid(transform.src):
            raise errors.MirrorInvalidSubjectFilterError(f"invalid subject {transform.src}")
        try:
            transforms.check(transform.src, transform.dest)
        except transforms.TransformError as error:
            raise errors.MirrorInvalidTransformDestinationError(error) from None
        if crossing is not None and number == crossing[0]:
            raise errors.MirrorOverlappingSubjectFiltersError()
    if mirror.external is None and not valid_name(mirror.name):
        raise errors.MirrorInvalidStreamNameError()


def check_sources(config: StreamConfig) -> Steps[None]:
    """Check the sources without regard to other streams, in steps. Raises ApiError."""
    if config.sources and config.allow_msg_schedules:
        raise errors.SourceWithMsgSchedulesError()
    names: set[str] = set()
    consumers: set[tuple[str, str, str]] = set()
    pace = Pace()
    for source in config.sources:
        if pace.over(_SOURCE_UNITS):
            yield
        if not isinstance(source, StreamSource) or not valid_name(
            source.name
        ):  # a list in JSON may hold null
            raise errors.SourceInvalidStreamNameError()
        name = index_name(source)
        if name in names:
            raise errors.SourceDuplicateDetectedError()
        names.add(name)
        yield from _check_source(source, pace)
        if source.consumer is not None:
            if not _good_consumer(source):
                raise errors.SourceDurableConsumerCfgInvalidError()
            api = source.external.api if source.external is not None else ""
            consumer = (source.name, api, source.consumer.name)
            if consumer in consumers:
                raise errors.SourceDurableConsumerDuplicateDetectedError()
            consumers.add(consumer)


def bad_filter(config: StreamConfig) -> str:
    """Return the fault of a filter of a mirror or of sources in words; "" when there is none."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_valid(mirror.filter_subject):
        return f"subject filter '{mirror.filter_subject}' for the mirror invalid subject"
    for source in config.sources:
        if source.filter_subject and not is_valid(source.filter_subject):
            return f"subject filter '{source.filter_subject}' for the source: invalid subject"
    return ""


def check_neighbours(config: StreamConfig, find: Find, *, pedantic: bool) -> None:
    """Check the configuration against the streams that it names. Raises ApiError. A mirror takes
    over allow_direct of its origin.
    """
    listened: dict[str, None] = {}
    mirror = config.mirror
    if mirror is not None and mirror.external is None:
        origin = find(mirror.name)
        if origin is not None:
            listened |= dict.fromkeys(origin.subjects)
            if 0 < config.max_msg_size < origin.max_msg_size:
                raise errors.MirrorMaxMessageSizeTooBigError()
            if pedantic and config.mirror_direct != origin.allow_direct:
                what = "origin stream has direct get set, mirror has it disabled"
                raise errors.PedanticError(what)
            config.mirror_direct = origin.allow_direct
    origins: dict[str, StreamConfig | None] = {}
    for source in config.sources:
        known = source.name in origins
        if not known:
            origins[source.name] = find(source.name)
        origin = origins[source.name] if source.external is None else None
        if origin is not None:
            if not known:
                listened |= dict.fromkeys(origin.subjects)
            if 0 < config.max_msg_size < origin.max_msg_size:
                raise errors.SourceMaxMessageSizeTooBigError()
    upstreams = [*([mirror] if mirror is not None else []), *config.sources]
    _check_prefixes([each.external for each in upstreams if each.external is not None], listened)
    _check_cycle(config, find)


def _check_mirror_alone(config: StreamConfig) -> None:
    if config.first_seq:
        raise errors.MirrorWithFirstSeqError()
    if config.subjects:
        raise errors.MirrorWithSubjectsError()
    if config.sources:
        raise errors.MirrorWithSourcesError()
    if config.allow_msg_counter:
        raise errors.MirrorWithCountersError()
    if config.allow_atomic:
        raise errors.MirrorWithAtomicPublishError()
    if config.allow_batched:
        raise errors.MirrorWithBatchPublishError()
    if config.allow_msg_schedules:
        raise errors.MirrorWithMsgSchedulesError()


def _good_consumer(source: StreamSource) -> bool:
    consumer = source.consumer
    return (
        consumer is not None
        and valid_name(consumer.name)
        and is_valid(consumer.deliver_subject)
        and is_literal(consumer.deliver_subject)
        and not source.opt_start_seq
        and source.opt_start_time is None
        and not source.filter_subject
    )


def _check_source(source: StreamSource, pace: Pace) -> Steps[None]:
    wanted = source.subject_transforms
    if source.filter_subject and wanted:
        raise errors.SourceMultipleFiltersNotAllowedError()
    for transform in wanted:
        if pace.over(transforms.units(transform.src, transform.dest)):
            yield
        if transform.src and not is_valid(transform.src):
            raise errors.SourceInvalidSubjectFilterError(f"invalid subject {transform.src}")
        try:
            transforms.check(transform.src, transform.dest)
        except transforms.TransformError as error:
            raise errors.SourceInvalidTransformDestinationError(error) from None
    if len(wanted) > 1 and nested([transform.src or ">" for transform in wanted]):
        raise errors.SourceOverlappingSubjectFiltersError()


def _check_prefixes(externals: list[ExternalStream], listened: Iterable[str]) -> None:
    # only a subject with `>` can match itself behind a prefix, which has more tokens
    tails = [subject for subject in listened if subject.endswith(">")]
    if len({external.deliver for external in externals} - {""}) * len(tails) > _MAX_LOOKS:
        raise Invalid(
            "the external origins have too many deliver prefixes and subjects to be compared"
        )
    for external in externals:
        prefix = external.deliver
        if not prefix:
            continue
        if not (is_valid(prefix) and is_literal(prefix)):
            raise errors.StreamInvalidExternalDeliverySubjError(prefix)
        for subject in tails:
            if collide(subject, f"{prefix}.{subject}"):
                raise errors.StreamExternalDelPrefixOverlapsError(prefix, subject)
    for external in externals:
        prefix = external.api
        if not prefix:
            continue
        if not (is_valid(prefix) and is_literal(prefix)):
            what = f'stream external api prefix "{prefix}" must be a valid subject'
            raise Invalid(f"{what} without wildcards")
        if collide(prefix, API_PREFIX):
            raise errors.StreamExternalApiOverlapError(prefix, API_PREFIX)


def _check_cycle(config: StreamConfig, find: Find) -> None:
    """Raise ApiError when the origins of the origins lead back to a stream that was visited before."""
    to_visit = deque([config])
    visited: set[str] = set()
    looks = 0
    while to_visit:
        here = to_visit.popleft()
        visited.add(here.name)
        for source in here.sources:
            looks += 1 + len(here.subjects) * (source.name in visited)
            if looks > _MAX_LOOKS:
                raise Invalid(
                    "the sources of the origins form too many paths to be checked for a cycle"
                )
            if source.external is not None:
                continue
            if source.name in visited:
                wanted = source.filter_subject
                if not wanted or any(collide(subject, wanted) for subject in here.subjects):
                    raise Invalid("detected cycle")
            elif (origin := find(source.name)) is not None:
                to_visit.append(origin)
        mirror = here.mirror
        if mirror is not None and mirror.external is None:
            if mirror.name in visited:
                raise Invalid("detected cycle")
            if (origin := find(mirror.name)) is not None:
                to_visit.append(origin)
