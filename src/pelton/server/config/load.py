"""Reads a configuration file into Settings, and reports all errors of a file at once: one line each, with
file, line and column.
"""

import hashlib
import os
from collections.abc import Mapping
from copy import copy

from pelton.server.config.grammar import Tree, parse
from pelton.server.config.reader import Reader
from pelton.server.config.top import NOT_SERVED, TOP, check_whole
from pelton.server.errors import ConfigError, unreadable
from pelton.server.settings import Settings


def load_config(
    path: str, settings: Settings | None = None, *, strict: bool = False
) -> tuple[Settings, list[str]]:
    """Read a configuration file: (settings, warnings). ConfigError lists every error in it.

    strict: warnings about outdated forms are errors.
    """
    try:
        text = _read(path)
    except (OSError, UnicodeDecodeError) as problem:
        reason = unreadable(problem)
        raise ConfigError(f"can't read configuration file {path}: {reason}") from None
    tree = parse(text, path, environ=os.environ, read_include=_read_include)
    if not tree.items:
        raise ConfigError(f"{path}: config has no values or is empty")
    found, warnings = _settings(tree, text, settings, strict)
    found.config_file = path
    return found, warnings


def read_config(
    text: str,
    file: str = "config",
    settings: Settings | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, list[str]]:
    """The same for a text; includes are read from disk, relative to the file's folder."""
    tree = parse(text, file, environ=environ, read_include=_read_include)
    return _settings(tree, text, settings, False)


def _settings(
    tree: Tree, text: str, settings: Settings | None, strict: bool
) -> tuple[Settings, list[str]]:
    reader = Reader(tree, copy(settings) if settings is not None else Settings(), NOT_SERVED)
    reader.section(tree.items, TOP, "")
    if not reader.problems:
        check_whole(reader, tree.items)
    if strict:
        reader.problems += reader.outdated
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    reader.settings.config_digest = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return reader.settings, reader.outdated + reader.warnings


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _read_include(including: str, path: str) -> tuple[str, str]:
    whole = os.path.join(os.path.dirname(including), path)
    return whole, _read(whole)
