"""``pelton bundle``: a server that is ready for a plgd hub, as the hub's own bundle of containers starts one.

The first start writes a configuration into the data folder; from then on the file is the user's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pelton.cli.plgd.hub_server import truth, write_configuration

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
    written once; change it as you like. NATS_PORT, JETSTREAM_PATH and OVERRIDE_FILES in the
    environment are those of the hub's bundle. Further options are those of pelton-server.
    """
    try:
        if jetstream is None:
            jetstream = truth(os.environ, "JETSTREAM")
        path, written = write_configuration(data, os.environ, jetstream=jetstream)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"cannot write into {data}: {error.strerror}") from None
    if written:
        said = "stream EVENTS keeps plgd.>" if jetstream else "no JetStream; JETSTREAM=true"
        click.echo(f"wrote {path}: {said}", err=True)
    from pelton.server.__main__ import main

    sys.exit(main(["-c", str(path), *options]))
