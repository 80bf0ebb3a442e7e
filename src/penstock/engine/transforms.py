"""Subject transforms: `src` is a pattern, `dest` what a subject that matches it becomes.

A token `*`, `$2` or `{{wildcard(2)}}` of the destination stands for what a `*` of the source took, a
last token `>` for what the source's `>` took. Pure functions of text.
"""

import re
from dataclasses import dataclass

from penstock.core.subjects import valid

_PLACE = re.compile(r"\$(\d+)|\{\{\s*[Ww]ildcard\(\s*(\d+)\s*\)\s*\}\}")


@dataclass(frozen=True)
class Transform:
    """A transform; make it with `parse`."""

    src: tuple[str, ...]
    dest: tuple[str | int, ...]  # a number: what that wildcard took

    def apply(self, subject: str) -> str | None:
        """What the subject becomes; None: it does not match."""
        tokens = subject.split(".")
        taken = [""]
        rest: list[str] = []
        for place, token in enumerate(self.src):
            if token == ">":
                rest = tokens[place:]
                break
            if place >= len(tokens):
                return None
            if token == "*":
                taken.append(tokens[place])
            elif token != tokens[place]:
                return None
        if not rest and (len(tokens) != len(self.src) or self.src[-1] == ">"):
            return None
        found: list[str] = []
        for part in self.dest:
            if part == ">":
                found += rest
            else:
                found.append(taken[part] if isinstance(part, int) else part)
        return ".".join(found)


def parse(src: str, dest: str) -> Transform:
    """The transform from `src` ("" is `>`) to `dest`; ValueError: there is none such."""
    source = tuple((src or ">").split("."))
    stars = source.count("*")
    parts: list[str | int] = []
    used = 0
    for token in dest.split(".") if dest else ():
        place = _PLACE.fullmatch(token)
        if place is not None:
            parts.append(int(place[1] or place[2]))
        elif token == "*":
            used += 1
            parts.append(used)
        elif "{" in token or not valid(token):
            raise ValueError(f"invalid transform destination {dest}")
        else:
            parts.append(token)
    if any(isinstance(part, int) and not 1 <= part <= stars for part in parts):
        raise ValueError(f"invalid transform destination {dest}")
    if ">" in parts and source[-1] != ">":
        raise ValueError(f"invalid transform destination {dest}")
    return Transform(source, tuple(parts))
