"""The configuration of a server for a plgd hub, by the environment variables of the hub's own bundle of containers.

==================  ==================================================================
``JETSTREAM``       true: JetStream, and the stream EVENTS, which keeps ``plgd.>``
``JETSTREAM_PATH``  the folder of the streams; ``jetstream`` in the data folder
``NATS_PORT``       the port for clients; 4222
``OVERRIDE_FILES``  true: write the file at each start, not only at the first
==================  ==================================================================

Does not depend on click: the container image starts with it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PORT = 4222
_MEMORY_BYTES = 1 << 30
_FILE_BYTES = 10 << 30
_STREAM = {
    "subjects": ["plgd.>"],
    "retention": "limits",
    "storage": "file",
    "discard": "old",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_msg_size": -1,
    "max_msgs_per_subject": -1,
    "num_replicas": 1,
    "duplicate_window": "10m",
}
_TRUTHS = {
    **dict.fromkeys(("true", "1", "yes", "on"), True),
    **dict.fromkeys(("", "false", "0", "no", "off"), False),
}


def truth(environ: Mapping[str, str], name: str) -> bool:
    """The value of a variable, False when it is not set. ValueError for another word."""
    text = environ.get(name, "")
    if text.lower() not in _TRUTHS:
        raise ValueError(f'{name}="{text}": expected true or false')
    return _TRUTHS[text.lower()]


def configuration(
    data: Path | None, environ: Mapping[str, str], further: Sequence[str] = ()
) -> str:
    """The server's configuration file, with `further` lines. ``data`` is the folder that holds the
    streams, None for no JetStream. ValueError for a variable that can't be used.
    """
    port = environ.get("NATS_PORT") or str(_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f'NATS_PORT="{port}": expected a port from 1 to 65535')
    lines = ["# Written at the first start; yours to change.", f"port: {port}", *further]
    if data is not None:
        store = environ.get("JETSTREAM_PATH") or str((data / "jetstream").absolute())
        fields = ", ".join(f"{name}: {json.dumps(value)}" for name, value in _STREAM.items())
        lines += [
            "jetstream: {",
            f"  store_dir: {json.dumps(store)}",
            f"  max_memory_store: {_MEMORY_BYTES}",
            f"  max_file_store: {_FILE_BYTES}",
            "}",
            f"streams: {{ EVENTS: {{ {fields} }} }}",
        ]
    return "\n".join(lines) + "\n"


def write_configuration(
    data: Path, environ: Mapping[str, str], *, jetstream: bool, further: Sequence[str] = ()
) -> tuple[Path, bool]:
    """The configuration file in the data folder, and whether it was written now. OSError, ValueError."""
    path = data / ("jetstream.config" if jetstream else "nats.config")
    text = configuration(data if jetstream else None, environ, further)
    again = truth(environ, "OVERRIDE_FILES")
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.exists() and not again:
        return path, False
    path.write_text(text, encoding="utf-8")
    return path, True
