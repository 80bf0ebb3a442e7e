"""``pelton bundle``: a server that is ready for a plgd hub, as the hub's own bundle of containers starts one.

The first start writes a configuration into the data folder; from then on the file is the user's.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

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
_OTHER_OPTIONS = {"ignore_unknown_options": True, "allow_extra_args": True}


@click.command(context_settings=_OTHER_OPTIONS)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("data"),
    show_default=True,
    help="The folder of the configuration and the streams.",
)
@click.option(
    "--jetstream/--no-jetstream",
    default=None,
    help="With JetStream and the stream EVENTS; otherwise JETSTREAM=true in the environment says so.",
)
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[SERVER OPTION]...")
def bundle(data: Path, jetstream: bool | None, options: tuple[str, ...]) -> None:
    """Start a server for a plgd hub.

    With JetStream the stream EVENTS keeps all events of the hub (plgd.>). The configuration is
    written once; change it as you like. Further options are those of pelton-server.
    """
    if jetstream is None:
        jetstream = _wanted(os.environ.get("JETSTREAM", ""))
    path = data / ("jetstream.config" if jetstream else "nats.config")
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(configuration(data if jetstream else None), encoding="utf-8")
            said = "stream EVENTS keeps plgd.>" if jetstream else "no JetStream; JETSTREAM=true"
            click.echo(f"wrote {path}: {said}", err=True)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
    from pelton.server.__main__ import main

    sys.exit(main(["-c", str(path), *options]))


def _wanted(text: str) -> bool:
    """The value of JETSTREAM."""
    if text.lower() in ("", "false", "0", "no", "off"):
        return False
    if text.lower() in ("true", "1", "yes", "on"):
        return True
    raise click.UsageError(f'JETSTREAM="{text}": expected true or false')


def configuration(data: Path | None) -> str:
    """The server's configuration; ``data`` is the folder that holds the streams, None for no JetStream."""
    lines = ["# Written by `pelton bundle` at its first start; yours to change.", "port: 4222"]
    if data is not None:
        fields = ", ".join(f"{name}: {json.dumps(value)}" for name, value in _STREAM.items())
        lines += [
            "jetstream: {",
            f"  store_dir: {json.dumps(str((data / 'jetstream').absolute()))}",
            f"  max_memory_store: {_MEMORY_BYTES}",
            f"  max_file_store: {_FILE_BYTES}",
            "}",
            f"streams: {{ EVENTS: {{ {fields} }} }}",
        ]
    return "\n".join(lines) + "\n"
