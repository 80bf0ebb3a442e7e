"""The permissions of a user under a scoped signing key: the template of the key, filled in with the name,
key and tags of the user.

    deny pub to "orders.{{name()}}.>"    {{subject()}} {{account-name()}} {{account-subject()}}
                                         {{tag(region)}} {{account-tag(region)}}: one for each value

Pure.
"""

import re
from itertools import product

import msgspec

from pelton.core.protocol.subjects import valid
from pelton.server.auth.claims import AccountClaims, Permission, Template, UserClaims

EXPANSIONS_MAX = 4096
_MUSTACHE = re.compile(r"\{\{([^}]+)\}\}")
_TAG = re.compile(r"(tag|account-tag)\((.*)\)", re.IGNORECASE | re.DOTALL)


class ScopeError(ValueError):
    """The template can't be filled in for this user."""


def fill(template: Template, user: UserClaims, account: AccountClaims) -> Template:
    """The template for this user.

    ScopeError when the template names a value that the user does not have and the subject is a
    denied one: dropping a denied subject would widen the permissions.
    """
    filled = msgspec.structs.replace(template)
    for attribute in ("pub", "sub"):
        rules = getattr(template, attribute) or Permission()
        allow = _expand(rules.allow or [], user, account, strict=False)
        deny = _expand(rules.deny or [], user, account, strict=True)
        if rules.allow and not allow:
            deny = [*deny, ">"]  # no allowed subject is left; an empty list would allow all
        setattr(filled, attribute, Permission(allow, deny))
    return filled


def _expand(
    subjects: list[str], user: UserClaims, account: AccountClaims, *, strict: bool
) -> list[str]:
    if not any("{{" in subject for subject in subjects):
        return subjects
    found: list[str] = []
    for subject in subjects:
        places = _MUSTACHE.findall(subject)
        choices = [_values(place.strip(), user, account) for place in places]
        if strict and not all(choices):
            raise ScopeError(f'"{subject}" names a tag that is not there')
        combinations = 1
        for values in choices:
            combinations *= len(values)
        if len(found) + combinations > EXPANSIONS_MAX:
            raise ScopeError(f"template expansion exceeds limit: {EXPANSIONS_MAX}")
        for chosen in product(*choices):
            filled = subject
            for place, value in zip(places, chosen, strict=True):
                filled = filled.replace("{{" + place + "}}", value)
            if _sound(filled):
                found.append(filled)
            elif strict:
                raise ScopeError("generated invalid subject")
    return found


def _sound(subject: str) -> bool:
    words = subject.split(" ")
    return len(words) <= 2 and all(word and valid(word) for word in words)


def _values(what: str, user: UserClaims, account: AccountClaims) -> list[str]:
    low = what.lower()
    if low == "name()":
        return [user.name]
    if low == "subject()":
        return [user.sub]
    if low == "account-name()":
        return [account.name]
    if low == "account-subject()":
        return [user.nats.issuer_account]
    tag = _TAG.fullmatch(what)
    if tag is None:
        raise ScopeError(f'template operation "{what}" is not defined')
    tags = account.nats.tags if tag[1].lower() == "account-tag" else user.nats.tags
    head = f"{tag[2].lower()}:"
    return [each.removeprefix(head) for each in tags or [] if each.startswith(head)]
