"""Makes the Settings of a start: options override the configuration file, the file the defaults."""

import os

from pelton.server.errors import OptionError, StartError
from pelton.server.options import Options
from pelton.server.settings import Settings
from pelton.server.settings.tls import Tls
from pelton.server.settings.users import is_bcrypt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def store_folder(settings: Settings) -> str:
    """The folder of the streams; without a setting, a folder that a reboot may empty."""
    if settings.store_dir:
        return settings.store_dir
    import tempfile

    return os.path.join(tempfile.gettempdir(), "pelton")


def settings_of(options: Options) -> tuple[Settings, list[str]]:
    """(settings, warnings) for a start or a reload. ConfigError or OptionError when they are
    invalid.
    """
    settings, warnings = Settings(), list[str]()
    if options.config:
        from pelton.server.config import load_config

        settings, warnings = load_config(options.config)
    given = options.given
    if "user" in given or "token" in given:
        # Credentials are replaced as a whole, so that credentials of the file do not admit other
        # clients.
        settings.user = settings.password = settings.token = ""
        settings.users = []
    if "http_port" in given and not settings.http_host:
        settings.http_host = given.get("host", settings.host)
    for name, value in given.items():
        setattr(settings, name, value)
    if any(each and not is_bcrypt(each) for each in _passwords(settings)):
        warnings.append("Plaintext passwords detected, use nkeys or bcrypt")
    if options.tls is not None:
        settings.tls = _tls(options.tls)
    if "cluster_routes" in given:
        from pelton.server.config.cluster import refusal, routes_elsewhere

        others = routes_elsewhere(settings, settings.cluster_routes)
        if others:
            raise OptionError(f"option --routes: {refusal(others)}")
    if settings.declared and not settings.jetstream:
        first = settings.declared[0]
        raise StartError(f"{first.place}: {first.shown} needs JetStream: jetstream {{}}, or -js")
    if settings.https_port and settings.http_port:
        raise OptionError("monitoring uses either HTTP or HTTPS: give -m or -ms")
    if settings.https_port and settings.tls is None:
        raise OptionError("https_port needs TLS: a tls map with cert_file and key_file, or --tls")
    if settings.http_port > 0 and settings.http_port == settings.port:
        raise OptionError(
            f"clients and monitoring cannot share port {settings.port}; choose another with -p or -m"
        )
    return settings, warnings


def _passwords(settings: Settings) -> list[str]:
    """All accepted credentials: of the server, its accounts and its other listeners."""
    found = [settings.password, settings.websocket.password]
    found += [user.password for user in settings.all_users()]
    if settings.leafnodes is not None:
        found.append(settings.leafnodes.password)
        found += [user.password for user in settings.leafnodes.users]
    return found


def _tls(given: "dict[str, Any]") -> Tls | None:
    """The Tls of the options, which replaces that of the file; {} is --tls=false."""
    if not given:
        return None
    if not (given.get("cert_file") and given.get("key_file")):
        raise OptionError("TLS needs --tlscert and --tlskey")
    return Tls(**{name: value for name, value in given.items() if name != "wanted"})
