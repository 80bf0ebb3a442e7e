"""The entry point of the container image (``deploy/docker``): ``python -m pelton.cli.container``.

=======================  ========================================================================
no arguments             the server, with the configuration file of the image
``JETSTREAM`` is set     the server of a plgd hub, as ``pelton bundle`` starts it on the volume
``-p 4333`` ...          the same with further options of pelton-server, or another file: ``-c``
``pelton stream ls`` ..  that command in place of the server
=======================  ========================================================================

The process becomes the server, so signals and the exit status are the server's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.cli.plgd.hub_server import truth, write_configuration
from pelton.server.__main__ import main as serve
from pelton.server.errors import OptionError, StartError
from pelton.server.options import parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DATA = Path("/data")
CONFIG = Path("/etc/pelton/pelton.conf")
HUB_LINES = ("http_port: 8222", "lame_duck_grace_period: 5s", "lame_duck_duration: 45s")
"""What the health check and `docker stop` need of a hub's configuration; as in the image's file."""


def main(
    arguments: Sequence[str],
    environ: Mapping[str, str] = os.environ,
    data: Path = DATA,
    config: Path = CONFIG,
) -> int:
    """Run the server, or another command in its place; the exit status."""
    if arguments and not arguments[0].startswith("-"):
        return _become(arguments)
    try:
        options = parse_options(arguments)
        if options.action in ("run", "check") and not options.config:
            arguments = ["-c", str(_config(environ, data, config)), *arguments]
    except StartError as problem:
        print(f"pelton: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, OptionError) else 1
    return serve(list(arguments))


def _become(command: Sequence[str]) -> int:
    try:
        os.execvp(command[0], list(command))
    except OSError as problem:
        print(f"pelton: cannot run {command[0]}: {problem.strerror}", file=sys.stderr)
        return 127


def _config(environ: Mapping[str, str], data: Path, config: Path) -> Path:
    """The configuration file to start with. StartError when the volume can't be written."""
    try:
        if "JETSTREAM" in environ:
            jetstream = truth(environ, "JETSTREAM")
            return write_configuration(data, environ, jetstream=jetstream, further=HUB_LINES)[0]
        if not os.access(data, os.W_OK | os.X_OK) and str(data) in config.read_text("utf-8"):
            raise PermissionError
    except ValueError as problem:
        raise OptionError(str(problem)) from None
    except PermissionError:
        user = os.geteuid()
        raise StartError(
            f"user {user} cannot write into {data}: chown {user} the folder that is mounted there, "
            'or run the container with --user "$(id -u)"'
        ) from None
    except OSError as problem:
        raise StartError(f"cannot write into {data}: {problem.strerror}") from None
    return config


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
