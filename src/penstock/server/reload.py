"""What a reload may change: compares settings with those of a configuration that was read again.
Pure.
"""

from dataclasses import fields

from penstock.server.settings import RELOADABLE, Settings

_ASIDE = frozenset({"config_file", "config_digest"})


def changes(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """(names of settings to change, sentences about those that can't change without a restart)."""
    changed: list[str] = []
    refused: list[str] = []
    for each in fields(Settings):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if before == after or each.name in _ASIDE:
            continue
        if each.name in RELOADABLE and not (each.name == "operator" and _trust_differs(old, new)):
            changed.append(each.name)
        else:
            refused.append(
                f"config reload not supported for {each.name.removesuffix('_ns')}: "
                f"old={before}, new={after}"
            )
    return changed, refused


def _trust_differs(old: Settings, new: Settings) -> bool:
    """Whether other keys are trusted, or accounts come from elsewhere; preloaded JWTs may change."""
    before, after = old.operator, new.operator
    if before is None or after is None:
        return before is not after
    return (before.jwts, before.trusted_keys, before.resolver) != (
        after.jwts,
        after.trusted_keys,
        after.resolver,
    )
