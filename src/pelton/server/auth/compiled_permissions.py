"""Permissions in the form that the core checks. Equal permissions are compiled once; each connection gets
a copy with its own state of allowed answers (`allow_responses`).
"""

from collections import OrderedDict

from pelton.core.protocol.permissions import ConnectionPermissions
from pelton.server.settings.users import Permissions

KEPT_MAX = 10_000  # a JWT may contain any permissions

_compiled: OrderedDict[tuple[object, ...], ConnectionPermissions] = OrderedDict()


def permits_of(permissions: Permissions | None) -> ConnectionPermissions | None:
    """The compiled permissions for one connection; None when it may do everything."""
    if permissions is None:
        return None
    key = _key(permissions)
    found = _compiled.get(key)
    if found is None:
        found = _compiled[key] = _compile(permissions)
        while len(_compiled) > KEPT_MAX:
            _compiled.popitem(last=False)
    return found.copy()


def _compile(permissions: Permissions) -> ConnectionPermissions:
    publish, subscribe, responses = (
        permissions.publish,
        permissions.subscribe,
        permissions.responses,
    )
    return ConnectionPermissions(
        publish.allow,
        publish.deny,
        subscribe.allow,
        subscribe.deny,
        responses.max if responses else 0,
        responses.expires_ns if responses else 0,
    )


def _key(permissions: Permissions) -> tuple[object, ...]:
    rules = [
        part
        for each in (permissions.publish, permissions.subscribe)
        for part in (None if each.allow is None else tuple(each.allow), tuple(each.deny))
    ]
    responses = permissions.responses
    return (*rules, (responses.max, responses.expires_ns) if responses else None)
