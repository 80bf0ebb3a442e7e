"""The files of contexts, which the ``nats`` command reads, too: writing, selecting, removing.

::

    nats/context/NAME.json        {"url": ..., "creds": ...}; readable only by the user
    nats/context.txt              the name of the selected context
    nats/previous-context.txt     the one that was selected before

A file is replaced as a whole, so that a reader never sees half of it.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from pelton.cli.inputs import read_input
from pelton.client.protocol.contexts import (
    EMBEDDED,
    context_names,
    folder_of_contexts,
    options_of,
)
from pelton.errors import ContextError

FILES = ("creds", "nkey", "cert", "key", "ca")
"""Fields that name files."""


def path_of(name: str) -> Path:
    """The file of a context; ContextError for a name that none can have."""
    if not name or ".." in name or not {"/", "\\", "\0"}.isdisjoint(name):
        raise ContextError(f"{name!r} cannot be the name of a context")
    return folder_of_contexts() / "context" / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    """The fields of a context as they are in its file; ContextError."""
    path = path_of(name)
    try:
        fields = json.loads(read_input(path))
    except FileNotFoundError:
        known = ", ".join(context_names()) or "none"
        raise ContextError(f"there is no context {name!r} in {path.parent}: {known}") from None
    except OSError as error:
        raise ContextError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ContextError(f"the context {name!r} is not a JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise ContextError(f"the context {name!r} is not a JSON object")
    return fields


def save(name: str, fields: dict[str, Any]) -> None:
    """Write a context; ContextError when no client could use it, and nothing is written."""
    path = path_of(name)
    text = json.dumps(fields, indent=2, ensure_ascii=False)
    options_of(text, name, str(Path.home()))
    _write(path, text + "\n")


def embed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with the content of credential files instead of their names; ContextError."""
    found = dict(fields)
    for field in ("creds", "nkey"):
        path = fields.get(field)
        if not path or path.startswith(EMBEDDED):
            continue
        try:
            data = read_input(Path(os.path.expanduser(path)))
        except OSError as error:
            raise ContextError(f"cannot read {path}: {error.strerror}") from None
        found[field] = EMBEDDED + base64.b64encode(data).decode()
    return found


def remove(name: str) -> None:
    """Remove a context; ContextError when there is none, or it is selected."""
    path = path_of(name)
    if not path.exists():
        raise ContextError(f"there is no context {name!r} in {path.parent}")
    if selected() == name:
        raise ContextError(f"the context {name!r} is selected: select another one first")
    path.unlink()


def selected() -> str:
    """The name of the selected context; "" for none."""
    return _name_in("context.txt")


def previous() -> str:
    """The name of the context that was selected before; "" for none."""
    return _name_in("previous-context.txt")


def select(name: str) -> None:
    """Select a context, "" for none; ContextError when there is none of that name."""
    if name:
        read(name)
    before, folder = selected(), folder_of_contexts()
    if before and before != name:
        _write(folder / "previous-context.txt", before)
    if name:
        _write(folder / "context.txt", name)
    else:
        (folder / "context.txt").unlink(missing_ok=True)


def problems_of(name: str) -> list[str]:
    """The parts of a context that a client cannot use: wrong fields, and files that can't be read."""
    try:
        fields = read(name)
        options_of(json.dumps(fields), name, str(Path.home()))
    except ContextError as error:
        return [str(error)]
    found = []
    for field in FILES:
        path = fields.get(field)
        if (
            path
            and not path.startswith(EMBEDDED)
            and not os.access(os.path.expanduser(path), os.R_OK)
        ):
            found.append(f"{field}: cannot read {path}")
    return found


def _name_in(file: str) -> str:
    try:
        return (folder_of_contexts() / file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _write(path: Path, text: str) -> None:
    """Replace a file, which only the user can read."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, part = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise
