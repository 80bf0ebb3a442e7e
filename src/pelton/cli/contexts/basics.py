"""``pelton context``: URLs and credentials under names, in the files of the ``nats`` command."""

from __future__ import annotations

import json
import os
from typing import Any

import click

from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import print_facts, print_json, print_names, print_table
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import Word
from pelton.core.base.quoting import shown

# option of the command line -> field of a context
_FIELDS = {
    "server": "url",
    "user": "user",
    "password": "password",
    "token": "token",
    "creds": "creds",
    "nkey": "nkey",
    "tlscert": "cert",
    "tlskey": "key",
    "tlsca": "ca",
    "tlsfirst": "tls_first",
    "domain": "jetstream_domain",
    "socks_proxy": "socks_proxy",
}
_SECRETS = ("password", "token", "user_seed", "user_jwt")
_URLS = ("url", "socks_proxy")
_LABELS = {
    "url": "Server URLs",
    "user": "User",
    "password": "Password",
    "token": "Token",
    "creds": "Credentials",
    "nkey": "NKey",
    "user_seed": "User seed",
    "user_jwt": "User JWT",
    "cert": "Certificate",
    "key": "Key",
    "ca": "CA",
    "tls_first": "TLS first",
    "jetstream_domain": "JetStream domain",
    "jetstream_api_prefix": "JetStream API prefix",
    "inbox_prefix": "Inbox prefix",
    "socks_proxy": "SOCKS proxy",
}

_NAME = click.argument("name")
_DESCRIPTION = click.option("--description", default=None, help="The context's description.")
_EMBED = click.option(
    "--embed", is_flag=True, help="Keep the content of credential files in the context."
)
_SELECT = click.option("--select", "select_it", is_flag=True, help="Select the context, too.")


@click.command()
@_NAME
@_DESCRIPTION
@_SELECT
@_EMBED
@click.option("-s", "--server", default="", help="URL of the server, or several with commas.")
@click.option("--user", default="", help="User name.")
@click.option("--password", default="", help="Password.")
@click.option("--token", default="", help="Token.")
@click.option("--creds", default="", help="File with a user's JWT and seed.")
@click.option("--nkey", default="", help="File with the seed of an nkey user.")
@click.option("--tlscert", default="", help="Certificate of the client.")
@click.option("--tlskey", default="", help="Key of the certificate.")
@click.option("--tlsca", default="", help="Certificates to trust.")
@click.option("--tlsfirst", is_flag=True, help="Do the TLS handshake before the server's INFO.")
@click.option("--domain", "--js-domain", default="", help="JetStream domain.")
@click.option("--socks-proxy", default="", help="SOCKS 5 proxy to connect through.")
@click.option("--js-api-prefix", default="", help="Prefix of the JetStream API.")
@click.option("--inbox-prefix", default="", help="Prefix of the subjects of answers.")
@command
@click.pass_obj
def add(
    session: Session,
    /,
    name: str,
    description: str | None,
    select_it: bool,
    embed: bool,
    js_api_prefix: str,
    inbox_prefix: str,
    **given: Any,
) -> None:
    """Save the connection options as context NAME, or change those of NAME.

    Options may be given before or after the command. Options that are not given keep their values
    in an existing context. The `nats` command uses the same contexts.
    """
    from pelton.cli.contexts import files as context_files
    from pelton.client.base.addresses import DEFAULT_URL
    from pelton.client.protocol.contexts import context_names

    fields = context_files.read(name) if name in context_names() else {"url": DEFAULT_URL}
    for option, field in _FIELDS.items():
        value = given[option] or getattr(session, option)
        if value and field in context_files.FILES:
            value = value if value.startswith("~") else os.path.abspath(value)
        if value:
            fields[field] = value
    more = {"jetstream_api_prefix": js_api_prefix, "inbox_prefix": inbox_prefix}
    fields.update({field: value for field, value in more.items() if value})
    if description is not None:
        fields["description"] = description
    context_files.save(name, context_files.embed(fields) if embed else fields)
    if select_it:
        context_files.select(name)
    _show(session, name)


@click.command()
@click.argument("name", required=False)
@command
@click.pass_obj
def select(session: Session, name: str | None) -> None:
    """Select the context NAME: commands without --server and --context use it."""
    from pelton.cli.contexts import files as context_files
    from pelton.client.protocol.contexts import context_names

    if name is None:
        known = context_names()
        if not known:
            raise click.ClickException("there is no context: pelton context add makes one")
        name = click.prompt("Context", type=Word(known), err=True)
    context_files.select(name)
    _tell_selected(session)


@click.command()
@command
@click.pass_obj
def unselect(session: Session) -> None:
    """Select no context."""
    from pelton.cli.contexts import files as context_files

    context_files.select("")
    _tell_selected(session)


@click.command()
@command
@click.pass_obj
def previous(session: Session) -> None:
    """Select the context that was selected before."""
    from pelton.cli.contexts import files as context_files

    before = context_files.previous()
    if not before:
        raise click.ClickException("no other context was selected before")
    context_files.select(before)
    _tell_selected(session)


def _tell_selected(session: Session) -> None:
    from pelton.cli.contexts import files as context_files

    name = context_files.selected()
    if session.as_json:
        print_json({"selected": name or None})
    else:
        print(shown(f"selected context {name}") if name else "selected no context")


@click.command()
@click.option("--names", is_flag=True, help="Only the names.")
@command
@click.pass_obj
def ls(session: Session, names: bool) -> None:
    """List the contexts. The selected one has a star. Passwords and keys are not shown."""
    from pelton.cli.contexts import files as context_files
    from pelton.client.protocol.contexts import context_names
    from pelton.errors import ContextError

    known = context_names()
    if names:
        print_names(session, known)
        return
    chosen = context_files.selected()
    found: list[dict[str, Any]] = []
    for name in known:
        try:
            fields = context_files.read(name)
        except ContextError as error:
            found.append({"name": name, "error": str(error)})
        else:
            found.append({"name": name, "description": "", "url": "", **_without_secrets(fields)})
        found[-1]["selected"] = name == chosen
    if session.as_json:
        print_json(found)
        return
    rows = [
        (
            each["name"] + ("*" if each["selected"] else ""),
            each.get("error") or str(each["description"]),
            str(each.get("url", "")),
        )
        for each in found
    ]
    print_table(("Name", "Description", "Server URLs"), rows)


@click.command()
@click.argument("name", required=False)
@click.option("--connect", is_flag=True, help="Also try to connect.")
@command
@click.pass_obj
def info(session: Session, name: str | None, connect: bool) -> int:
    """Show the context NAME, or the selected one. Secrets are shown only with --json."""
    from pelton.cli.contexts import files as context_files

    name = name or context_files.selected()
    if not name:
        raise click.ClickException("no context is selected: give a NAME")
    return _show(session, name, connect=connect)


def _without_secrets(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with passwords, tokens, seeds and embedded credentials hidden, also those of URLs."""
    from pelton.client.base.addresses import HIDDEN, masked
    from pelton.client.protocol.contexts import EMBEDDED

    found = dict(fields)
    for name, value in fields.items():
        if value and (name in _SECRETS or str(value).startswith(EMBEDDED)):
            found[name] = HIDDEN
        elif name in _URLS and isinstance(value, str):
            found[name] = masked(value)
    return found


def _show(session: Session, name: str, *, connect: bool = False) -> int:
    from pelton.cli.contexts import files as context_files
    from pelton.client.base.addresses import HIDDEN, masked
    from pelton.client.protocol.contexts import EMBEDDED

    fields = context_files.read(name)
    problems = _problems(session, name, connect)
    if session.as_json:
        print_json({"name": name, **fields} | ({"problems": problems} if problems else {}))
        return FAILED if problems else DONE
    facts = [("Description", str(fields.get("description") or ""))]
    for field, label in _LABELS.items():
        value = fields.get(field)
        if value:
            text = "yes" if value is True else str(value)
            if text.startswith(EMBEDDED):
                text = "in the context itself"
            if field in _URLS:
                text = masked(text)
            facts.append((label, HIDDEN if field in _SECRETS else text))
    facts.append(("Path", str(context_files.path_of(name))))
    facts += [("Problem", each) for each in problems]
    if connect and not problems:
        facts.append(("Connection", "works"))
    print_facts(f"Context {name}", facts)
    return FAILED if problems else DONE


def _problems(session: Session, name: str, connect: bool) -> list[str]:
    from pelton.cli.contexts import files as context_files
    from pelton.client import sync
    from pelton.errors import PeltonError

    found = context_files.problems_of(name)
    if connect and not found:
        seconds = session.timeout / 1e9
        try:
            sync.connect(context=name, connect_timeout=seconds, timeout=seconds).close()
        except (PeltonError, OSError, ValueError) as error:
            found.append(f"cannot connect: {error}".replace("cannot connect: cannot", "cannot"))
    return found


@click.command()
@_NAME
@command
@click.pass_obj
def edit(session: Session, name: str) -> None:
    """Open the context NAME in $EDITOR. A context that no client could use is not saved."""
    from pelton.cli.contexts import files as context_files
    from pelton.cli.editing import edited
    from pelton.errors import ContextError

    def save(text: str) -> None:
        try:
            fields = json.loads(text)
        except ValueError as error:
            raise ContextError(f"nothing is saved, this is not JSON: {error}") from None
        if not isinstance(fields, dict):
            raise ContextError("nothing is saved, this is not a JSON object")
        context_files.save(name, fields)

    edited(json.dumps(context_files.read(name), indent=2, ensure_ascii=False) + "\n", save)
    _show(session, name)


@click.command()
@click.argument("source")
@_NAME
@_DESCRIPTION
@_SELECT
@_EMBED
@command
@click.pass_obj
def copy(
    session: Session,
    source: str,
    name: str,
    description: str | None,
    select_it: bool,
    embed: bool,
) -> None:
    """Copy the context SOURCE as NAME."""
    from pelton.cli.contexts import files as context_files
    from pelton.client.protocol.contexts import context_names

    fields = context_files.read(source)
    if name in context_names():
        raise click.ClickException(f"there is a context {name} already")
    if description is not None:
        fields["description"] = description
    context_files.save(name, context_files.embed(fields) if embed else fields)
    if select_it:
        context_files.select(name)
    _show(session, name)


@click.command()
@_NAME
@click.option("-f", "--force", is_flag=True, help="Do not ask.")
@command
@click.pass_obj
def rm(session: Session, name: str, force: bool) -> None:
    """Remove the context NAME."""
    from pelton.cli.contexts import files as context_files

    context_files.read(name)
    if not force:
        confirm(f"Really remove context {name}?")
    context_files.remove(name)
    print_json({"removed": name}) if session.as_json else print(shown(f"removed context {name}"))


@click.command()
@click.argument("name", required=False)
@click.option("--connect", is_flag=True, help="Also try to connect.")
@command
@click.pass_obj
def validate(session: Session, name: str | None, connect: bool) -> int:
    """Check the context NAME, or all, and the files that they name.

    Exit status: 1 if a client could not use one of them.
    """
    from pelton.client.protocol.contexts import context_names

    found = {
        each: _problems(session, each, connect) for each in ([name] if name else context_names())
    }
    if session.as_json:
        print_json([{"name": each, "problems": problems} for each, problems in found.items()])
    else:
        rows = [(each, "; ".join(problems) or "ok") for each, problems in found.items()]
        print_table(("Name", "State"), rows)
    return FAILED if any(found.values()) else DONE
