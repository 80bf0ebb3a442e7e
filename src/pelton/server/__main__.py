"""``pelton-server``: reads options and configuration, opens the sockets and runs the server.

This module imports only the modules for --help, --version and wrong options; a start imports the rest.
"""

import contextlib
import gc
import os
import sys

from pelton.core.libraries import NoServerError, require_server
from pelton.server.errors import OptionError, StartError
from pelton.server.options import PROGRAM, SERVE, Options, parse_options, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pelton.server.app import Server
    from pelton.server.logs.log import Log
    from pelton.server.settings import Settings


def main(arguments: list[str] | None = None, program: str = PROGRAM) -> int:
    """Entry point of the console script, and of ``pelton serve``; returns the exit status."""
    try:
        return _main(sys.argv[1:] if arguments is None else arguments, program)
    except StartError as problem:
        print(f"{program}: {problem}", file=sys.stderr)
        return 2 if isinstance(problem, OptionError) else 1
    except KeyboardInterrupt:
        return 130
    except NoServerError as missing:
        print(f"{program}: {missing}", file=sys.stderr)
        return 1


def _main(arguments: list[str], program: str) -> int:
    options = parse_options(arguments, program)
    if options.action == "help":
        print(usage(program), end="")
        return 0
    if options.action == "help_tls":
        from pelton.server.transports.tls_names import help_text

        print(help_text(), end="")
        return 0
    if options.action == "version":
        print(version_line())
        return 0
    if options.action == "signal":
        from pelton.server.signals import send_signal

        send_signal(options.signal)
        return 0
    if options.action == "check":
        return _check(options)
    return _serve(options, local=program == SERVE and not options.config)


def version_line() -> str:
    """The output of --version: the nats-server release that clients may assume, and Pelton's
    version.
    """
    from pelton import __version__
    from pelton.server.settings import COMPATIBLE_VERSION

    return f"nats-server: v{COMPATIBLE_VERSION} (pelton {__version__})"


def _check(options: Options) -> int:
    from pelton.server.config import load_config

    if not options.config:
        raise OptionError("option -t needs a configuration file: -c <file>")
    settings, warnings = load_config(options.config, strict=True)
    if settings.tls is not None or settings.websocket.tls is not None:
        from pelton.server.transports.tls import server_contexts

        server_contexts(settings)  # StartError when a certificate can't be used
    for warning in warnings:
        print(f"{PROGRAM}: {warning}", file=sys.stderr)
    print(
        f"{PROGRAM}: configuration file {options.config} is valid ({settings.config_digest})",
        file=sys.stderr,
    )
    return 0


def _serve(options: Options, *, local: bool) -> int:
    require_server()
    gc.disable()  # until the server serves: loading makes no garbage
    from pelton.server.logs.log import Log
    from pelton.server.startup import settings_of

    quiet = False
    if local:
        from pelton.server import serve

        quiet = not serve.wants_log(options.given)
        options.given = serve.local(options.given, os.environ)
    settings, warnings = settings_of(options)
    log = Log(
        settings.log_file,
        debug=settings.debug,
        trace=settings.trace,
        stamps=settings.logtime,
        utc=settings.logtime_utc,
        form=settings.log_format,
        limit=settings.log_size_limit,
        keep=settings.log_max_num,
        syslog=settings.syslog_address,
        quiet=quiet,
    )
    for warning in warnings:
        log.warn(warning)
    try:
        try:
            _run(settings, log, options, local=local)
        except ModuleNotFoundError as missing:
            if (missing.name or "").partition(".")[0] == "pelton":
                raise
            raise StartError(
                f"the package {missing.name} is not installed: pip install {missing.name}"
            ) from None
    except StartError as problem:
        if quiet:
            raise
        for line in str(problem).split("\n"):
            log.fatal(line)
        if settings.log_file or settings.syslog_address is not None:
            raise  # the error goes to stderr
        return 1
    finally:
        log.close()
    return 0


def _run(settings: "Settings", log: "Log", options: Options, *, local: bool) -> None:
    from pelton.server.startup import settings_of
    from pelton.server.transports.listener import open_sockets

    sockets = open_sockets(settings.host, settings.port)
    http_sockets = (
        open_sockets(settings.http_host or settings.host, monitoring, "-m")
        if (monitoring := settings.http_port or settings.https_port)
        else []
    )
    store = None
    if settings.jetstream:
        from pelton.server.files import lock_store
        from pelton.server.startup import store_folder

        store = lock_store(store_folder(settings), settings.domain, log.warn)
    # The ports are bound from here on; the server listens when it can greet clients.
    from pelton.core.base.buffer import seed_hash
    from pelton.server.app import Server

    # A random hash seed keeps clients from choosing keys that collide. Once per process, before any
    # table has a key.
    seed_hash(int.from_bytes(os.urandom(8), "little"))
    server = Server(settings, log, sockets, http_sockets, store, lambda: settings_of(options))
    if local:
        server.on_ready = lambda: _greet(server, options)
    server.run()


def _greet(server: "Server", options: Options) -> None:
    from pelton.server import serve

    store = os.path.abspath(server.store.folder) if server.store is not None else ""
    (url,) = server.ports()["nats"]
    with contextlib.suppress(OSError):  # nobody reads it
        program = serve.program_typed()
        said = serve.greeting(url, store, options.given, program, os.environ)
        print(said, end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
