"""``mappings`` of an account: the destinations of messages that clients publish to a subject."""

from pelton.core.protocol.subjects import valid
from pelton.server.config.grammar import Item
from pelton.server.config.reader import Reader
from pelton.server.config.values import kind, text
from pelton.server.settings.accounts import Mapping, MappingTarget


def mappings(reader: Reader, name: str, item: Item) -> None:
    """A map of subjects to one destination, or to several with weights."""
    if not isinstance(item.value, dict):
        raise ValueError(f"expected a map of subjects to destinations, got {kind(item)}")
    from pelton.server.accounts.mapping import (
        problem_of,  # imports transforms, which few servers use
    )

    found: list[Mapping] = []
    for subject, entry in item.value.items():
        if reader.tree.is_variable(entry):
            continue
        if not valid(subject):
            reader.problem(entry, f'Subject "{subject}" is not a valid subject')
            continue
        mapping = Mapping(subject)
        if isinstance(entry.value, list):
            for each in entry.value:
                _add(reader, mapping, each)
        elif isinstance(entry.value, dict):
            _add(reader, mapping, entry)
        else:
            mapping.targets.append(MappingTarget(text(entry)))
        problem = problem_of(mapping)
        if problem:
            to = f' to "{entry.value}"' if isinstance(entry.value, str) else ""
            reader.problem(entry, f'Error adding mapping for "{subject}"{to} : {problem}')
        else:
            found.append(mapping)
    reader.target.mappings = found


def _add(reader: Reader, mapping: Mapping, item: Item) -> None:
    if not isinstance(item.value, dict):
        reader.problem(item, "Expected an entry for the mapping destination")
        return
    target = MappingTarget(weight=-1)
    for key, value in item.value.items():
        where = key.lower()
        if where in ("dest", "destination"):
            target.subject = text(value)
        elif where == "weight":
            weight = _weight(reader, value)
            if weight is None:
                return
            target.weight = weight
        elif where == "cluster":
            target.cluster = text(value)
        else:
            reader.problem(value, f'Unknown field "{key}" for mapping destination')
            return
    if target.weight < 0:
        reader.problem(item, f'Missing weight for mapping destination "{target.subject}"')
    else:
        mapping.targets.append(target)


def _weight(reader: Reader, item: Item) -> int | None:
    value = item.value
    if isinstance(value, str):
        shown = value.removesuffix("%")
        try:
            value = int(shown)
        except ValueError:
            reader.problem(item, f'Invalid weight "{shown}" for mapping destination')
            return None
    if not isinstance(value, int) or isinstance(value, bool):
        reader.problem(item, f"Unknown entry type for weight of {kind(item)}")
        return None
    if not 0 <= value <= 100:
        reader.problem(item, f"Invalid weight {value} for mapping destination")
        return None
    return value
