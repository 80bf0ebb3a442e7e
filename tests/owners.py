"""Which assignments of the compiled core change the state of an object of another module.

A source is read line by line: `cdef class` bodies give the types of fields, signatures and `cdef`
lines those of names. `s.live -= 1` with `cdef Segment s` is found in each module but core/log/segment;
so is `log.tail.base = 0`, which changes a Tail. A name whose type is no class of the core (a
struct, a Python object) is left alone, and so is what a function does with an address.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CLASS = re.compile(r"cdef class (\w+)(?:\((\w+)\))?\s*:")
FIELD = re.compile(r"    cdef\s+(?:public\s+|readonly\s+)*(\w+)\s+([\w, *\[\]]+)$")
FUNCTION = re.compile(
    r"\s*(?:def|cdef|cpdef)\s+(?!class|extern|enum|struct|packed|union)[^(=]*\((.*)"
)
STRUCT = re.compile(r"c(?:type)?def (?:packed )?struct (\w+)")
NAMES = re.compile(r"\s*cdef\s+(\w+)\s+(.+)")
CAST = re.compile(r"\(<(\w+)>[^()]*(?:\([^()]*\)[^()]*)*\)")
INDEX = re.compile(r"\[[^\[\]]*\]")
PLACE = re.compile(r"[\w.]+")


@dataclass
class Classes:
    """The extension classes of some files."""

    module: dict[str, str] = field(default_factory=dict)
    base: dict[str, str] = field(default_factory=dict)
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    structs: dict[str, set[str]] = field(default_factory=dict)

    def read(self, path: Path) -> None:
        """Take the classes that a .pxd or .pyx file declares."""
        name = ""
        structs = self.structs.setdefault(path.stem, set())
        for line in path.read_text().splitlines():
            code = line.split("#")[0].rstrip()
            if match := CLASS.match(code):
                name = match[1]
                self.module.setdefault(name, path.stem)
                if match[2]:
                    self.base[name] = match[2]
            elif code and not code[0].isspace():
                name = ""
                structs.update(STRUCT.findall(code))
            elif name and (match := FIELD.match(code)) and match[1] not in structs:
                for each in match[2].split(","):
                    self.fields.setdefault(name, {})[each.split("[")[0].strip(" *")] = match[1]

    def type_of(self, owner: str, name: str) -> str:
        """The type of a field; "" when the class has no such field."""
        while owner:
            if found := self.fields.get(owner, {}).get(name):
                return found
            owner = self.base.get(owner, "")
        return ""


def statements(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and strings; those within brackets are joined."""
    start, whole = 0, ""
    text = re.sub(r'"""[\s\S]*?"""', lambda match: "\n" * match[0].count("\n"), text)
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line).split("#")[0].rstrip()
        start, whole = (start, f"{whole} {code.strip()}") if whole else (number, code)
        if whole.count("(") + whole.count("[") <= whole.count(")") + whole.count("]"):
            if whole:
                yield start, whole
            whole = ""


def targets(statement: str) -> list[str]:
    """What a statement assigns to: `a.b = c.d, e.f = 1` gives a.b, c.d and e.f."""
    depth, parts, last = 0, [""], ""
    for letter, following in zip(statement, f"{statement[1:]} ", strict=True):
        depth += (letter in "([") - (letter in ")]")
        if letter == "=" and depth == 0 and following != "=" and last not in "=!<>":
            parts.append("")
        else:
            parts[-1] += letter
        last = letter
    left = [part.rstrip("+-*/|&^%<> ") for part in parts[:-1]]
    return [each.strip() for part in left for each in split(part)]


def split(text: str) -> list[str]:
    """The parts between the commas that are in no brackets."""
    return re.split(r",(?![^(\[]*[)\]])", text)


def declared(signature: str) -> Iterator[tuple[str, str]]:
    """(name, type) of the arguments of a function."""
    for each in split(signature.rpartition(")")[0] or signature):
        if match := re.match(r"\s*(\w+)\s+\**(\w+)", each):
            yield match[2], match[1]
        elif match := re.match(r"\s*(\w+)\s*:\s*(\w+)", each):
            yield match[1], match[2]


def foreign_assignments(path: Path, classes: Classes) -> Iterator[tuple[int, str, str]]:
    """(line, target, class) for each assignment to a field of a class of another module."""
    here, types = "", dict[str, str]()
    for number, statement in statements(path.read_text()):
        if match := CLASS.match(statement):
            here = match[1]
        elif match := FUNCTION.match(statement):
            here = here if statement[0].isspace() else ""
            types = {"self": here, **dict(declared(match[1]))}
        elif match := NAMES.match(statement):
            for each in split(match[2]):
                types[each.split("=")[0].strip(" *")] = match[1]
        else:
            for target in targets(statement):
                owner = owner_of(target, types, classes)
                if owner and classes.module[owner] != path.stem:
                    yield number, target, owner


def owner_of(target: str, types: dict[str, str], classes: Classes) -> str:
    """The class whose object an assignment to this changes; "": none of the core."""
    place = CAST.sub(r"\1!", target)
    while (shorter := INDEX.sub("", place)) != place:
        place = shorter
    root, *names = place.split(".")
    if not names or not PLACE.fullmatch(place.replace("!", "")):
        return ""
    owner = kind = root[:-1] if root.endswith("!") else types.get(root, "")
    for name in names[:-1]:
        kind = classes.type_of(kind, name)
        owner = kind if kind in classes.module else owner
    return owner if owner in classes.module else ""


def classes_of(paths: Iterable[Path]) -> Classes:
    """The classes that some files declare."""
    classes = Classes()
    for path in sorted(paths, key=lambda path: path.suffix):
        classes.read(path)
    return classes
