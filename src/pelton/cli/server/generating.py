"""``pelton server generate``: a configuration file for a server, from options or questions.

The file is read by pelton-server and by nats-server. It is checked before it is written.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from pelton.cli.output import print_json
from pelton.cli.prompts import ask, command_line, confirm, may_ask
from pelton.cli.session import Session, command, not_here
from pelton.cli.values import SIZE
from pelton.core.base.quoting import shown

_FILE = "server.conf"
_COST = 11
_OPTIONS: dict[str, Any] = {
    "name": "",
    "listen": "127.0.0.1:4222",
    "store": "",
    "domain": "",
    "user": "",
    "system_user": "",
    "monitor": "",
}


@click.command()
@click.argument("target", type=click.Path(path_type=Path))
@not_here(
    "--source",
    "bundles are templates in Go's language, which only the nats command fills in;"
    " these options write such files: --operator, --resolver, --jetstream, --remote",
)
@click.option("--name", help="Name of the server.")
@click.option("--listen", help="Address for clients.", show_default="127.0.0.1:4222")
@click.option("--jetstream/--no-jetstream", default=None, help="With JetStream.")
@click.option("--store", help="Folder of JetStream.")
@click.option("--max-memory", type=SIZE, default=0, help="Memory that JetStream may use.")
@click.option("--max-storage", type=SIZE, default=0, help="Disk that JetStream may use.")
@click.option("--domain", "domain", help="JetStream domain.")
@click.option("--user", help="A user NAME, or NAME:PASSWORD; otherwise everybody may connect.")
@click.option("--system-user", help="A user of the system account: NAME, or NAME:PASSWORD.")
@click.option("--monitor", help="Address of monitoring, such as 127.0.0.1:8222.")
@click.option("--leafnodes", help="Address for leaf nodes, such as 0.0.0.0:7422.")
@click.option("--remote", multiple=True, help="URL of a server to join as a leaf node.")
@click.option("--websocket", help="Address for WebSocket clients, such as 127.0.0.1:8080.")
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False), help="Certificate.")
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="Its key.")
@click.option("--tls-ca", type=click.Path(exists=True, dir_okay=False), help="CA of the clients.")
@click.option("--tls-verify", is_flag=True, help="Clients need a certificate.")
@click.option(
    "--operator", help="Trust this operator: its name in pelton auth, or the file of its JWT."
)
@click.option("--resolver", type=click.Path(file_okay=False), help="Folder of account JWTs.")
@click.option("--system-account", help="Public key of the system account, beside --operator.")
@click.option("--defaults", is_flag=True, help="Ask nothing.")
@click.option("-f", "--force", is_flag=True, help="Replace an existing file.")
@command
@click.pass_obj
def generate(session: Session, /, target: Path, defaults: bool, force: bool, **given: Any) -> None:
    """Write a server's configuration to TARGET: a file, a folder, or - for standard output.

    At a terminal it asks for values that no option gives. It generates missing passwords and prints
    them once. pelton serve TARGET starts the server.
    """
    if may_ask() and not defaults:
        _ask(given)
    given.update({key: value for key, value in _OPTIONS.items() if given[key] is None})
    passwords: dict[str, str] = {}
    whole = configuration(given, passwords)
    text = _checked(whole)
    if str(target) == "-":
        print(text, end="")
    else:
        path = target / _FILE if target.is_dir() else target
        _write(path, text, force)
    if session.as_json and str(target) != "-":
        print_json({"file": str(path), "passwords": passwords})
        return
    for name, password in passwords.items():
        click.echo(shown(f"password of {name}: {password}"), err=True)
    if str(target) != "-":
        start = command_line(["pelton", "serve", str(path)], [])
        print(shown(f"wrote {path}; start it with: {start}"))


def _ask(given: dict[str, Any]) -> None:
    """Fill in the values that no option gives."""
    if given["name"] is None:
        given["name"] = ask("Name of the server", "--name", "")
    if given["listen"] is None:
        given["listen"] = ask("Address for clients", "--listen", _OPTIONS["listen"])
    if given["jetstream"] is None:
        given["jetstream"] = click.confirm("With JetStream (--jetstream)", default=True, err=True)
    if given["jetstream"] and given["store"] is None:
        given["store"] = ask("Folder of JetStream", "--store", "./data/jetstream")
    if given["operator"] is None:
        if given["user"] is None:
            given["user"] = ask("User, empty for none", "--user", "")
        if given["system_user"] is None:
            given["system_user"] = ask("User of the system account", "--system-user", "")
    if given["monitor"] is None:
        given["monitor"] = ask("Address of monitoring, empty for none", "--monitor", "")


def configuration(given: dict[str, Any], passwords: dict[str, str]) -> dict[str, Any]:
    """The configuration; ``passwords`` gets the generated ones. UsageError for options that exclude each other."""
    whole: dict[str, Any] = {"listen": given["listen"]}
    if given["name"]:
        whole["server_name"] = given["name"]
    if given["monitor"]:
        whole["http"] = given["monitor"]
    if given["jetstream"] or given["store"]:
        whole["jetstream"] = _jetstream(given)
    whole |= _users(given, passwords)
    if given["leafnodes"] or given["remote"]:
        listen = {"listen": given["leafnodes"]} if given["leafnodes"] else {}
        remotes = [{"url": url} for url in given["remote"]]
        whole["leafnodes"] = {**listen, **({"remotes": remotes} if remotes else {})}
    tls = _tls(given)
    if tls:
        whole["tls"] = tls
    if given["websocket"]:
        whole["websocket"] = {
            "listen": given["websocket"],
            **({"tls": tls} if tls else {"no_tls": True}),
        }
    return whole


def _jetstream(given: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"store_dir": given["store"] or "./data/jetstream"}
    for name, key in (
        ("max_memory", "max_memory_store"),
        ("max_storage", "max_file_store"),
        ("domain", "domain"),
    ):
        if given[name]:
            found[key] = given[name]
    return found


def _users(given: dict[str, Any], passwords: dict[str, str]) -> dict[str, Any]:
    if given["operator"]:
        if given["user"] or given["system_user"]:
            raise click.UsageError(
                "--operator and --user exclude each other: accounts have the users"
            )
        path = Path(given["operator"])
        if path.is_file():
            found: dict[str, Any] = {"operator": str(path.absolute())}
        else:
            found = _known_operator(given["operator"])
        if given["resolver"]:
            found["resolver"] = {"type": "full", "dir": str(Path(given["resolver"]).absolute())}
        if given["system_account"]:
            found["system_account"] = given["system_account"]
        return found
    from pelton.cli.server.tools import random_password

    if given["resolver"] or given["system_account"]:
        raise click.UsageError("--resolver and --system-account need --operator")
    user = _login(given["user"], passwords)
    system = _login(given["system_user"], passwords)
    if system is None:
        return {} if user is None else {"authorization": {"users": [user]}}
    users: dict[str, Any] = {"users": [] if user is None else [user]}
    if given["jetstream"] or given["store"]:
        users["jetstream"] = "enabled"
    accounts = {"SYS": {"users": [system]}, "MAIN": users}
    found = {"accounts": accounts, "system_account": "SYS"}
    if user is None:
        # a hash would not do: nats-server logs everybody in with the password as it is here
        accounts["MAIN"]["users"] = [{"user": "anybody", "password": random_password()}]
        found["no_auth_user"] = "anybody"
    return found


def _known_operator(name: str) -> dict[str, Any]:
    from pelton.cli.auth.operators import server_part
    from pelton.cli.auth.store import Store

    store = Store()
    return server_part(store, store.operator(name), "./jwt")


def _login(text: str, passwords: dict[str, str]) -> dict[str, str] | None:
    from pelton.cli.server.tools import bcrypt_hash

    if not text:
        return None
    name, colon, password = text.partition(":")
    if not colon:
        return {"user": name, "password": _made_up(name, passwords)}
    return {"user": name, "password": bcrypt_hash(password, _COST)}


def _made_up(name: str, passwords: dict[str, str]) -> str:
    from pelton.cli.server.tools import bcrypt_hash, random_password

    passwords[name] = random_password()
    return bcrypt_hash(passwords[name], _COST)


def _tls(given: dict[str, Any]) -> dict[str, Any]:
    if bool(given["tls_cert"]) != bool(given["tls_key"]):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if not given["tls_cert"]:
        if given["tls_ca"] or given["tls_verify"]:
            raise click.UsageError("--tls-ca and --tls-verify need --tls-cert and --tls-key")
        return {}
    files = {
        "cert_file": given["tls_cert"],
        "key_file": given["tls_key"],
        "ca_file": given["tls_ca"],
    }
    found: dict[str, Any] = {
        name: str(Path(path).absolute()) for name, path in files.items() if path
    }
    if given["tls_verify"]:
        found["verify"] = True
    return found


def _checked(whole: dict[str, Any]) -> str:
    """The text of the file; UsageError with everything that a server would refuse."""
    from pelton.server.config.load import read_config
    from pelton.server.errors import ConfigError

    text = "".join(f"{key}: {json.dumps(value, indent=2)}\n" for key, value in whole.items())
    try:
        read_config(text, environ=os.environ)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    return text


def _write(path: Path, text: str, force: bool) -> None:
    if path.exists() and not force:
        confirm(f"Really replace {path}?")
    part = path.with_name(f".{path.name}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from None
