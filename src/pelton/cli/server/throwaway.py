"""``pelton server run``: a server for trying things out, with a context for each of its users.

The users are ``local`` and ``service``, each in an account with JetStream, and ``system`` in the system account.
Passwords and the port stay the same from one run to the next: they are kept in the contexts.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import click

from pelton.cli.output import print_facts, print_json
from pelton.cli.session import Session, command
from pelton.cli.values import Whole

if TYPE_CHECKING:
    from collections.abc import Mapping

DEMO = "nats://demo.nats.io:7422"
_COST = 5  # a login takes no time; the passwords are long
_LENGTH = 32


@dataclass(frozen=True)
class User:
    """A user of the server: its name, its account, and the suffix of its context's name."""

    name: str
    account: str
    suffix: str
    text: str


USERS = (
    User("local", "USER", "", "Local user of a server for trying things out"),
    User("service", "SERVICE", "_service", "Service of a server for trying things out"),
    User("system", "SYSTEM", "_system", "System user of a server for trying things out"),
)


@click.command("run")
@click.argument("name", default="nats_development")
@click.option("--jetstream", is_flag=True, help="With JetStream.")
@click.option(
    "--store", type=click.Path(file_okay=False, path_type=Path), help="Folder of JetStream."
)
@click.option("--port", type=Whole(-1, 65535), default=-1, help="Port; -1 for any free one.")
@click.option("--monitor", type=Whole(0, 65535), default=0, help="Port of monitoring.")
@click.option("--extend", is_flag=True, help="Join the servers of the context as a leaf node.")
@click.option(
    "--leaf-port", default=7422, show_default=True, help="Their port for leaf nodes, for --extend."
)
@click.option("--extend-demo", is_flag=True, help=f"Join {DEMO} as a leaf node.")
@click.option("--clean", is_flag=True, help="Remove the contexts at the end.")
@click.option("--verbose", is_flag=True, help="Log in debug mode.")
@command
@click.pass_obj
def run(
    session: Session,
    name: str,
    jetstream: bool,
    store: Path | None,
    port: int,
    monitor: int,
    extend: bool,
    leaf_port: int,
    extend_demo: bool,
    clean: bool,
    verbose: bool,
) -> int:
    """Start a server for trying things out, with contexts NAME, NAME_service and NAME_system.

    It listens on 127.0.0.1 only. Ctrl-C stops it.
    """
    from pelton.cli.contexts import files as context_files
    from pelton.client.protocol.contexts import context_names
    from pelton.server.__main__ import main

    remotes = _remotes(session, leaf_port if extend else 0, extend_demo)
    known = {user: _known(name + user.suffix, context_names()) for user in USERS}
    url = _url(port, known[USERS[0]])
    domain = name.upper() if jetstream and remotes else ""
    passwords = {user: known[user].get("password") or _password() for user in USERS}
    place = store or _data_folder() / "nats" / name
    text = configuration(
        name,
        urlsplit(url).port or 0,
        passwords,
        place if jetstream else None,
        remotes,
        domain,
        monitor,
    )
    for user in USERS:
        fields = {
            "description": user.text,
            "url": url,
            "user": user.name,
            "password": passwords[user],
            **({"jetstream_domain": domain} if domain and user.account != "SYSTEM" else {}),
        }
        context_files.save(name + user.suffix, fields)
    descriptor, path = tempfile.mkstemp(prefix="pelton-run-", suffix=".conf")
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        _tell(session, name, url, passwords, place if jetstream else None, domain)
        return main(["-c", path, *(["-D"] if verbose else [])])
    finally:
        os.unlink(path)
        if clean:
            for user in USERS:
                if context_files.selected() == name + user.suffix:
                    context_files.select("")
                context_files.remove(name + user.suffix)


def _known(context: str, names: list[str]) -> Mapping[str, Any]:
    from pelton.cli.contexts import files as context_files

    return context_files.read(context) if context in names else {}


def _url(port: int, known: Mapping[str, Any]) -> str:
    if port == 0:
        raise click.UsageError("--port 0 is no port; -1 is any free one")
    if port < 0 and known.get("url"):
        return str(known["url"])
    return f"nats://127.0.0.1:{port if port > 0 else _free_port()}"


def _free_port() -> int:
    import socket

    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        found: int = made.getsockname()[1]
    return found


def _data_folder() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")


def _password() -> str:
    from pelton.cli.server.tools import random_password

    return random_password(_LENGTH)


def _remotes(session: Session, leaf_port: int, demo: bool) -> list[dict[str, str]]:
    found = [{"url": DEMO, "account": "USER"}] if demo else []
    if leaf_port:
        from pelton.cli.contexts import files as context_files

        context = session.context_in_use()
        if not context:
            raise click.UsageError("--extend needs a context: give --context, or select one")
        fields = context_files.read(context)
        if not fields.get("url"):
            raise click.UsageError(f"the context {context} has no URL")
        remote = {"url": _leaf_url(fields, leaf_port), "account": "USER"}
        if fields.get("creds"):
            remote["credentials"] = os.path.expanduser(str(fields["creds"]))
        found.append(remote)
    return found


def _leaf_url(fields: Mapping[str, Any], leaf_port: int) -> str:
    """The first server of a context, at its port for leaf nodes, with the context's user."""
    first = str(fields["url"]).split(",")[0].strip()
    given = urlsplit(first if "://" in first else f"nats://{first}")
    user = given.username or quote(str(fields.get("user") or ""), safe="")
    password = given.password or quote(str(fields.get("password") or ""), safe="")
    login = f"{user}:{password}@" if user and password else f"{user}@" if user else ""
    host = f"[{given.hostname}]" if ":" in (given.hostname or "") else given.hostname
    return f"{given.scheme}://{login}{host}:{leaf_port}"


def configuration(
    name: str,
    port: int,
    passwords: Mapping[User, str],
    store: Path | None,
    remotes: list[dict[str, str]],
    domain: str,
    monitor: int,
) -> str:
    """The server's configuration file."""
    from pelton.cli.server.tools import bcrypt_hash

    accounts: dict[str, Any] = {}
    for user in USERS:
        login = {"user": user.name, "password": bcrypt_hash(passwords[user], _COST)}
        accounts[user.account] = {"users": [login]}
        if store is not None and user.account != "SYSTEM":
            accounts[user.account]["jetstream"] = "enabled"
    service = {"service": {"account": "SERVICE", "subject": "service.>"}}
    accounts["USER"]["imports"] = [{**service, "to": "imports.SERVICE.>"}]
    accounts["SERVICE"]["exports"] = [{"service": "service.>"}]
    whole: dict[str, Any] = {
        "listen": f"127.0.0.1:{port}",
        "server_name": name,
        "system_account": "SYSTEM",
        "accounts": accounts,
    }
    if monitor:
        whole["http"] = f"127.0.0.1:{monitor}"
    if store is not None:
        whole["jetstream"] = {
            "store_dir": str(store.absolute()),
            **({"domain": domain} if domain else {}),
        }
    if remotes:
        whole["leafnodes"] = {"remotes": remotes}
    return json.dumps(whole, indent=2) + "\n"


def _tell(
    session: Session,
    name: str,
    url: str,
    passwords: Mapping[User, str],
    store: Path | None,
    domain: str,
) -> None:
    if session.as_json:
        users = [
            {"user": user.name, "password": passwords[user], "context": name + user.suffix}
            for user in USERS
        ]
        print_json(
            {"name": name, "url": url, "users": users, "store": str(store) if store else None}
        )
    else:
        logins = [
            (
                f"{user.name.capitalize()} user",
                f"{user.name}, password {passwords[user]}, context {name + user.suffix}",
            )
            for user in USERS
        ]
        print_facts(
            f"Server {name}, for trying things out",
            [("URL", url), *logins, ("Streams in", str(store or "")), ("Domain", domain)],
        )
    import sys

    sys.stdout.flush()
