"""Every kind of use that a killed server is held to, as `base.Kind`s."""

from tests.crash.kinds import buckets, consumers, groups, limits
from tests.crash.kinds.base import Kind, Runner

KINDS: tuple[type[Kind], ...] = (*limits.ALL, *consumers.ALL, *buckets.ALL, *groups.ALL)

__all__ = ["KINDS", "Kind", "Runner"]
