"""YAML and TOML as nodes with their places."""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime, time
from typing import Any

from pelton.apply.model import Node, NodeValue, Place, fault

_TOML_PLACE = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
_DEPTH_MOST = 100
_ALIASED_MOST = 100_000
"""So many values may a text have besides those that are written out."""
_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset({"int", "float", "bool", "null"})
_KNOWN = _SCALARS | {"str", "timestamp", "seq", "map", "value"}


def read_yaml(text: str, file: str) -> list[Node]:
    """The documents of a text; empty ones are left out. ConfigurationError with line and column."""
    try:
        import yaml
    except ImportError:
        raise fault(Place(file), "YAML needs the package pyyaml: pip install pyyaml") from None
    found = []
    loader = None
    try:
        loader = yaml.SafeLoader(text)
        made = _Yaml(loader, file, len(text) + _ALIASED_MOST)
        while loader.check_node():
            node = made.node(loader.get_node())
            if node.value is not None:
                found.append(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = Place(file, mark.line + 1, mark.column + 1) if mark else Place(file)
        raise fault(place, str(error.problem or error.context)) from None
    except yaml.YAMLError as error:  # a character that is not allowed
        raise fault(Place(file), " ".join(str(error).split())) from None
    except RecursionError:
        raise fault(Place(file), "values are nested too deeply") from None
    finally:
        if loader is not None:
            loader.dispose()
    return found


class _Yaml:
    """Makes nodes of YAML's own; a text of some lines may stand for billions of them (aliases of aliases)."""

    def __init__(self, loader: Any, file: str, most: int) -> None:
        self.loader, self.file, self.left = loader, file, most

    def node(self, node: Any, depth: int = 0) -> Node:
        import yaml

        place = self.place(node)
        self.left -= 1
        if depth > _DEPTH_MOST:
            raise fault(place, "values are nested too deeply")
        if self.left < 0:
            raise fault(place, "aliases stand for too many values")
        if node.tag.removeprefix(_TAG) not in _KNOWN:
            raise fault(place, f'the tag "{node.tag.removeprefix(_TAG)}" is not understood')
        if isinstance(node, yaml.SequenceNode):
            return Node([self.node(each, depth + 1) for each in node.value], place)
        if isinstance(node, yaml.MappingNode):
            return Node(self.mapping(node, depth), place)
        if node.tag.removeprefix(_TAG) not in _SCALARS:  # text; so are times in the API
            return Node(str(node.value), place)
        try:
            value: NodeValue = self.loader.construct_object(node)
        except ValueError as error:
            raise fault(place, str(error)) from None
        return Node(value, place)

    def mapping(self, node: Any, depth: int) -> dict[str, Node]:
        import yaml

        found: dict[str, Node] = {}
        for key, inner in node.value:
            at = self.place(key)
            if not isinstance(key, yaml.ScalarNode) or key.tag == f"{_TAG}merge":
                raise fault(at, "a key is a plain word; merge keys (<<) are not understood")
            if key.value in found:
                raise fault(at, f'"{key.value}" is given twice, also at {found[key.value].at}')
            found[key.value] = self.node(inner, depth + 1)
            found[key.value].key = at
        return found

    def place(self, node: Any) -> Place:
        return Place(self.file, node.start_mark.line + 1, node.start_mark.column + 1)


def read_toml(text: str, file: str) -> list[Node]:
    """The document of a text. Places are those of the keys' lines, as far as they are clear."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _TOML_PLACE.fullmatch(str(error))
        place = Place(file, int(found[2]), int(found[3])) if found and found[2] else Place(file)
        raise fault(place, found[1] if found else str(error)) from None
    except RecursionError:
        raise fault(Place(file), "values are nested too deeply") from None
    return [_toml(data, Place(file, 1), _lines(text))] if data else []


def _lines(text: str) -> dict[str, list[int]]:
    """The lines where a word may be a key; tomllib keeps no places."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        head = line.split("#")[0].partition("=")[0]
        for word in re.findall(r"[\w-]+", head):
            found.setdefault(word, []).append(number)
    return found


def _toml(data: object, place: Place, lines: dict[str, list[int]]) -> Node:
    if isinstance(data, dict):
        found: dict[str, Node] = {}
        for key, value in data.items():
            after = [line for line in lines.get(key, []) if line >= place.line]
            at = Place(place.file, after[0]) if after else place
            found[key] = _toml(value, at, lines)
            found[key].key = at
        return Node(found, place)
    if isinstance(data, list):
        return Node([_toml(each, place, lines) for each in data], place)
    if isinstance(data, datetime):
        return Node(data.isoformat().replace("+00:00", "Z"), place)
    if isinstance(data, date | time):
        return Node(data.isoformat(), place)
    assert isinstance(data, str | int | float)
    return Node(data, place)
