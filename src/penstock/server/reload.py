"""What a reload may change: compares settings with those of a configuration that was read again.
Pure.
"""

from dataclasses import fields

from penstock.server.settings import RELOADABLE, Settings
from penstock.server.settings.leafnodes import fixed_changes

_ASIDE = frozenset({"config_file", "config_digest"})


def changes(old: Settings, new: Settings) -> tuple[list[str], list[str]]:
    """(names of settings to change, sentences about those that can't change without a restart)."""
    changed: list[str] = []
    refused: list[str] = []
    for each in fields(Settings):
        before, after = getattr(old, each.name), getattr(new, each.name)
        if before == after or each.name in _ASIDE:
            continue
        if each.name == "leafnodes" and (fixed := fixed_changes(before, after)):
            refused += [f"config reload not supported for {name}" for name in fixed]
        elif each.name in RELOADABLE:
            changed.append(each.name)
        else:
            refused.append(
                f"config reload not supported for {each.name.removesuffix('_ns')}: "
                f"old={before}, new={after}"
            )
    return changed, refused
