"""Contexts of the ``nats`` command as options of a client.

::

    ~/.config/nats/context.txt           the name of the selected context
    ~/.config/nats/context/NAME.json     {"url": ..., "creds": ..., "jetstream_domain": ...}

``$XDG_CONFIG_HOME`` replaces ``~/.config``. ``options_of`` reads nothing; ``read_context`` does.
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

import msgspec

from pelton.errors import ContextError

from ..base.addresses import DEFAULT_URL, TlsOptions, parse_servers

_OUTSIDE = {
    "nsc": "ask nsc for the user's .creds file and set creds",
    "windows_cert_store": "export the certificate and set cert and key",
}
"""Fields that need another program, with the way around."""
_TEXTS = {
    "inbox_prefix": "inbox_prefix",
    "jetstream_domain": "jetstream_domain",
    "jetstream_api_prefix": "jetstream_prefix",
    "socks_proxy": "socks_proxy",
    "token": "token",
    "user_jwt": "jwt",
}
"""Fields that are options under another name."""
EMBEDDED = "data:;base64,"
"""What credentials begin with that are in the context itself and not in a file."""
_FORBIDDEN = frozenset("/\\\0")


def options_of(text: bytes | str, name: str, home: str) -> dict[str, Any]:
    """The options in the text of a context file; ``home`` is the folder of ``~`` in file names.

    Raises ContextError for text that is no context, and for fields that the client can't follow.
    """
    try:
        fields = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ContextError(f"the context {name!r} is not a JSON object: {error}") from None
    for field, instead in _OUTSIDE.items():
        if fields.get(field):
            raise ContextError(f"the context {name!r} has {field}: {instead}")
    # Fields that are not known here pass: newer versions of the command write more.
    wrong = [
        field
        for field, value in fields.items()
        if field in _KNOWN and value is not None and not isinstance(value, _KNOWN[field])
    ]
    if wrong:
        raise ContextError(f"the context {name!r} has a wrong type in: {', '.join(wrong)}")
    fields |= {
        field: _embedded(fields[field], name)
        for field in ("creds", "nkey", "user_seed", "user_jwt")
        if str(fields.get(field) or "").startswith(EMBEDDED)
    }
    found: dict[str, Any] = {}
    try:
        found["servers"] = parse_servers(fields.get("url") or DEFAULT_URL)
    except ValueError as error:
        raise ContextError(f"the context {name!r}: {error}") from None
    for field, option in _TEXTS.items():
        if fields.get(field):
            found[option] = fields[field]
    found.update(_credentials(fields, name, home))
    files: dict[str, Any] = {
        option: _path(fields[field], home)
        for field, option in (("ca", "ca_file"), ("cert", "cert_file"), ("key", "key_file"))
        if fields.get(field)
    }
    if files or fields.get("tls_first"):
        try:
            found["tls"] = TlsOptions(**files, first=bool(fields.get("tls_first")))
        except ValueError:
            raise ContextError(f"the context {name!r} has key without cert") from None
    return found


_KNOWN: dict[str, type] = {
    **dict.fromkeys(
        ("url", "user", "password", "creds", "nkey", "user_seed", "ca", "cert", "key"), str
    ),
    **dict.fromkeys(_TEXTS, str),
    "tls_first": bool,
}


def _credentials(fields: dict[str, Any], name: str, home: str) -> dict[str, str]:
    """Those of the first kind that is there, in the order of the ``nats`` command."""
    if fields.get("user"):
        return {"user": fields["user"], "password": fields.get("password") or ""}
    if creds := fields.get("creds"):
        if "\n" in creds:  # it was in the context
            return {"creds": creds}
        # For example op://, which the nats command resolves with the 1Password program.
        if "://" in creds:
            raise ContextError(
                f"the context {name!r} has creds in {creds.partition(':')[0]}://: name a file"
            )
        return {"creds": _path(creds, home)}
    if fields.get("user_seed"):
        return {"nkey": fields["user_seed"]}
    return {"nkey": _path(fields["nkey"], home)} if fields.get("nkey") else {}


def _embedded(value: str, name: str) -> str:
    """The text of credentials that are in the context itself; ContextError."""
    try:
        return base64.b64decode(value.removeprefix(EMBEDDED), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ContextError(f"the context {name!r} has credentials that are not Base64") from None


def _path(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def folder_of_contexts() -> Path:
    """The folder of the ``nats`` command's files."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats"


def selected_context() -> str:
    """The name of the selected context; ContextError when none is selected."""
    path = folder_of_contexts() / "context.txt"
    try:
        name = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if not name:
        raise ContextError(f"no context is selected in {path}: give the name of a context")
    return name


def context_names() -> list[str]:
    """The names of all contexts, in order."""
    return sorted(path.stem for path in (folder_of_contexts() / "context").glob("*.json"))


def read_context(name: str = "") -> dict[str, Any]:
    """The options of a context, "" for the selected one; ContextError when it can't be read."""
    name = name or selected_context()
    # A name must not lead out of the folder of contexts.
    if not _FORBIDDEN.isdisjoint(name):
        raise ContextError(f"{name!r} is not the name of a context")
    path = folder_of_contexts() / "context" / f"{name}.json"
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        known = ", ".join(context_names()) or "none"
        raise ContextError(f"there is no context {name!r} in {path.parent}: {known}") from None
    except OSError as error:
        raise ContextError(f"cannot read {path}: {error.strerror}") from None
    return options_of(text, name, str(Path.home()))
