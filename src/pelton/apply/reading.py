"""Texts of all dialects as resources; the name or the first words of a file decide its dialect."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from pelton.apply.assembling import Assembly
from pelton.apply.documents import read_toml, read_yaml
from pelton.apply.jsonc import read_json
from pelton.apply.model import ConfigurationError, Declared, Place
from pelton.apply.plain import read_plain
from pelton.apply.terraform import File, read_module

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Form: TypeAlias = Literal["json", "yaml", "toml", "tf"]

SUFFIXES: Mapping[str, Form] = {
    ".tf.json": "tf",
    ".tf": "tf",
    ".json": "json",
    ".jsonc": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
}
_HCL = re.compile(r'^\s*(resource|provider|variable)\s+"|^\s*(locals|terraform)\s*\{', re.MULTILINE)
_TOML = re.compile(r"\s*(#[^\n]*\n\s*)*(\[|[\w.-]+\s*=)")


def form_of(name: str, text: str) -> Form:
    """The language of a file, by its suffix; without a known one, by the text."""
    for suffix, form in SUFFIXES.items():
        if name.lower().endswith(suffix):
            return form
    head = text.lstrip()
    if head.startswith(("{", "//", "/*")) or re.match(r"\[\s*[{\]\n]", head):
        return "json"
    if _HCL.search(text):
        return "tf"
    return "toml" if _TOML.match(text) else "yaml"


def known(name: str) -> bool:
    """Whether a folder's file is read: its suffix says that it is a configuration."""
    return name.lower().endswith(tuple(SUFFIXES))


def read(files: Sequence[File], variables: Mapping[str, str] | None = None) -> Declared:
    """The declarations of files, with all mistakes. Terraform files of one folder are one module."""
    declared = Declared()
    assembly = Assembly(declared)
    modules: dict[str, list[File]] = {}
    for file in files:
        form = form_of(file.name, file.text)
        if form == "tf":
            modules.setdefault(posixpath.dirname(file.name), []).append(file)
            continue
        reader = {"json": read_json, "yaml": read_yaml, "toml": read_toml}[form]
        try:
            documents = reader(file.text, file.name)
        except ConfigurationError as error:
            declared.problems += error.problems
            continue
        if not documents:
            declared.wrong(Place(file.name), "this file is empty")
        for document in documents:
            read_plain(assembly, document)
    for module in modules.values():
        read_module(assembly, module, variables)
    return declared


def checked(declared: Declared) -> Declared:
    """The same, if there are no mistakes; else ConfigurationError with all of them."""
    if declared.problems:
        raise ConfigurationError(declared.problems)
    return declared
