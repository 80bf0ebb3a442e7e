"""What a configuration may ask of a mirror or of sources: the protocol's checks, in its order.

`check_mirror` and `check_sources` look at the configuration alone; `check_neighbours` at the
streams it names, as far as they can be seen here.
"""

from collections.abc import Callable

from penstock.api import errors_generated as errors
from penstock.api.streams import ExternalStream, StreamConfig, StreamSource
from penstock.api.subjects import valid_name
from penstock.core.subjects import collide, subset
from penstock.engine import transforms
from penstock.engine.sources.identity import index_name
from penstock.engine.subject_rules import is_literal, is_valid

Find = Callable[[str], StreamConfig | None]
Invalid = errors.StreamInvalidConfigError
API_PREFIX = "$JS.API"


def check_mirror(config: StreamConfig, mirror: StreamSource) -> None:
    """Raise what a mirror is refused for, whatever other streams there are."""
    _check_mirror_alone(config)
    if mirror.consumer is not None and not _good_consumer(mirror):
        raise errors.MirrorDurableConsumerCfgInvalidError()
    if mirror.filter_subject and mirror.subject_transforms:
        raise errors.MirrorMultipleFiltersNotAllowedError()
    if config.subject_delete_marker_ttl > 0:
        raise Invalid("subject delete markers forbidden on mirrors")
    for number, transform in enumerate(mirror.subject_transforms):
        if transform.src and not is_valid(transform.src):
            raise errors.MirrorInvalidSubjectFilterError(f"invalid subject {transform.src}")
        try:
            transforms.check(transform.src, transform.dest)
        except transforms.TransformError as error:
            raise errors.MirrorInvalidTransformDestinationError(error) from None
        for other in mirror.subject_transforms[:number] + mirror.subject_transforms[number + 1 :]:
            if collide(transform.src or ">", other.src or ">"):
                raise errors.MirrorOverlappingSubjectFiltersError()
    if mirror.external is None and not valid_name(mirror.name):
        raise errors.MirrorInvalidStreamNameError()


def check_sources(config: StreamConfig) -> None:
    """Raise what the sources are refused for, whatever other streams there are."""
    if config.sources and config.allow_msg_schedules:
        raise errors.SourceWithMsgSchedulesError()
    names: set[str] = set()
    consumers: set[tuple[str, str, str]] = set()
    for source in config.sources:
        if not isinstance(source, StreamSource) or not valid_name(
            source.name
        ):  # a list may hold null
            raise errors.SourceInvalidStreamNameError()
        name = index_name(source)
        if name in names:
            raise errors.SourceDuplicateDetectedError()
        names.add(name)
        _check_source(source)
        if source.consumer is not None:
            if not _good_consumer(source):
                raise errors.SourceDurableConsumerCfgInvalidError()
            api = source.external.api if source.external is not None else ""
            consumer = (source.name, api, source.consumer.name)
            if consumer in consumers:
                raise errors.SourceDurableConsumerDuplicateDetectedError()
            consumers.add(consumer)


def bad_filter(config: StreamConfig) -> str:
    """What is wrong with a filter of a mirror or of sources, in words; "" when nothing is."""
    mirror = config.mirror
    if mirror is not None and mirror.filter_subject and not is_valid(mirror.filter_subject):
        return f"subject filter '{mirror.filter_subject}' for the mirror invalid subject"
    for source in config.sources:
        if source.filter_subject and not is_valid(source.filter_subject):
            return f"subject filter '{source.filter_subject}' for the source: invalid subject"
    return ""


def check_neighbours(config: StreamConfig, find: Find, *, pedantic: bool) -> None:
    """Raise what the streams that are named refuse, and their subjects; a mirror takes over
    allow_direct of its origin.
    """
    listened: list[str] = []
    mirror = config.mirror
    if mirror is not None and mirror.external is None:
        origin = find(mirror.name)
        if origin is not None:
            listened += origin.subjects
            if 0 < config.max_msg_size < origin.max_msg_size:
                raise errors.MirrorMaxMessageSizeTooBigError()
            if pedantic and config.mirror_direct != origin.allow_direct:
                what = "origin stream has direct get set, mirror has it disabled"
                raise errors.PedanticError(what)
            config.mirror_direct = origin.allow_direct
    for source in config.sources:
        origin = find(source.name) if source.external is None else None
        if origin is not None:
            listened += origin.subjects
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


def _check_source(source: StreamSource) -> None:
    wanted = source.subject_transforms
    if source.filter_subject and wanted:
        raise errors.SourceMultipleFiltersNotAllowedError()
    for transform in wanted:
        if transform.src and not is_valid(transform.src):
            raise errors.SourceInvalidSubjectFilterError(f"invalid subject {transform.src}")
        try:
            transforms.check(transform.src, transform.dest)
        except transforms.TransformError as error:
            raise errors.SourceInvalidTransformDestinationError(error) from None
    for number, transform in enumerate(wanted):
        for other in wanted[:number] + wanted[number + 1 :]:
            if subset(transform.src or ">", other.src or ">"):
                raise errors.SourceOverlappingSubjectFiltersError()


def _check_prefixes(externals: list[ExternalStream], listened: list[str]) -> None:
    for external in externals:
        prefix = external.deliver
        if not prefix:
            continue
        if not (is_valid(prefix) and is_literal(prefix)):
            raise errors.StreamInvalidExternalDeliverySubjError(prefix)
        for subject in listened:
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
    """Follow the origins of the origins: none of them may be one that was met before."""
    to_visit = [config]
    visited: set[str] = set()
    while to_visit:
        here = to_visit.pop(0)
        visited.add(here.name)
        for source in here.sources:
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
