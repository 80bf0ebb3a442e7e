"""From options and configuration file to Settings: options win over the file, the file over the
defaults.
"""

import os

from penstock.server.errors import OptionError, StartError
from penstock.server.options import Options
from penstock.server.settings import Settings


def store_folder(settings: Settings) -> str:
    """Where streams are kept; without a setting, a folder that a reboot may empty."""
    if settings.store_dir:
        return settings.store_dir
    import tempfile

    return os.path.join(tempfile.gettempdir(), "penstock")


def settings_of(options: Options) -> tuple[Settings, list[str]]:
    """(settings, warnings); ConfigError or OptionError when they can't be used. Called again for
    every reload.
    """
    settings, warnings = Settings(), list[str]()
    if options.config:
        from penstock.server.config import load_config

        settings, warnings = load_config(options.config)
    given = options.given
    if "user" in given or "token" in given:
        # Credentials are replaced as a whole: those of the file must not let anybody else in.
        settings.user = settings.password = settings.token = ""
        settings.users = []
    if "http_port" in given and not settings.http_host:
        settings.http_host = given.get("host", settings.host)
    for name, value in given.items():
        setattr(settings, name, value)
    if "cluster_routes" in given:
        from penstock.server.config.cluster import refusal, routes_elsewhere

        others = routes_elsewhere(settings, settings.cluster_routes)
        if others:
            raise OptionError(f"option --routes: {refusal(others)}")
    if settings.declared and not settings.jetstream:
        first = settings.declared[0]
        raise StartError(f"{first.place}: {first.shown} needs JetStream: jetstream {{}}, or -js")
    if settings.http_port > 0 and settings.http_port == settings.port:
        raise OptionError(
            f"clients and monitoring can't share port {settings.port}; choose another with -p or -m"
        )
    return settings, warnings
