"""``pelton auth account exports``, ``imports`` and ``mappings``: subjects between accounts, and inside of one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pelton.cli.auth import choosing
from pelton.cli.auth.accounts import save
from pelton.cli.auth.store import Entity, Store
from pelton.cli.inputs import read_input, read_text_input
from pelton.cli.output import print_facts, print_json, print_table
from pelton.cli.prompts import confirm
from pelton.cli.session import Session, command
from pelton.cli.values import WHOLE, Whole, Word
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

F = TypeVar("F", bound=Callable[..., Any])

_ACCOUNT = click.argument("account", default="")
_SERVICE = click.option("--service", is_flag=True, help="A service; otherwise a stream.")
_POSITION = click.option(
    "--token-position", type=WHOLE, help="Place of the importer's key in the subject."
)


class _Home:
    """The account that a command changes."""

    def __init__(self, operator: str, account: str) -> None:
        self.store = Store()
        self.operator = choosing.operator_of(self.store, operator)
        self.account = choosing.account_of(self.store, self.operator, account)

    def listed(self, kind: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.account.nats.get(kind) or []
        return found

    def one(
        self, kind: str, field: Callable[[Mapping[str, Any]], str], subject: str
    ) -> dict[str, Any]:
        """The export or import with this subject or name."""
        found = self.listed(kind)
        if not subject and len(found) == 1:
            return found[0]
        for each in found:
            if subject and subject in (field(each), each.get("name")):
                return each
        raise click.ClickException(
            f"the account {self.account.name} has no {kind[:-1]} {subject}".rstrip()
        )

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        self.account.nats[kind] = [*self.listed(kind), entry]
        self.save()

    def remove(self, kind: str, entry: dict[str, Any]) -> None:
        self.account.nats[kind] = [each for each in self.listed(kind) if each is not entry]
        self.save()

    def save(self) -> None:
        save(self.store, self.operator, self.account)


def _subject(entry: Mapping[str, Any]) -> str:
    return str(entry.get("subject", ""))


def _local(entry: Mapping[str, Any]) -> str:
    return str(entry.get("local_subject") or entry.get("to") or entry.get("subject", ""))


def _print(session: Session, what: str, entry: Mapping[str, Any]) -> None:
    if session.as_json:
        print_json(entry)
        return
    facts = [
        (key.replace("_", " ").capitalize(), value if isinstance(value, str) else json.dumps(value))
        for key, value in entry.items()
        if key != "token"
    ]
    print_facts(f"{what} {entry.get('name') or _subject(entry)}", facts)


def _removed(session: Session, subject: str) -> None:
    if session.as_json:
        print_json({"removed": subject})
    else:
        print(shown(f"removed {subject}"))


# -- exports


@click.command("add")
@click.argument("name")
@click.argument("subject")
@_ACCOUNT
@choosing.OPERATOR
@click.option("--description", default="", help="Its description.")
@click.option("--url", default="", help="A URL with more information.")
@_POSITION
@click.option("--advertise", is_flag=True, help="Show it to others.")
@_SERVICE
@click.option("--activation", is_flag=True, help="Importers need an activation token.")
@click.option(
    "--response",
    type=Word(("Singleton", "Stream", "Chunked")),
    help="How a service answers.",
)
@command
@click.pass_obj
def export_add(
    session: Session,
    name: str,
    subject: str,
    account: str,
    operator: str,
    description: str,
    url: str,
    token_position: int | None,
    advertise: bool,
    service: bool,
    activation: bool,
    response: str | None,
) -> None:
    """Let other accounts import the SUBJECT of ACCOUNT, as NAME."""
    home = _Home(operator, account)
    if response and not service:
        raise click.UsageError("--response needs --service")
    entry = {"name": name, "subject": subject, "type": "service" if service else "stream"}
    more = {
        "description": description,
        "info_url": url,
        "account_token_position": token_position or 0,
        "advertise": advertise,
        "token_req": activation,
        "response_type": response or ("Singleton" if service else ""),
    }
    whole = {**entry, **{key: value for key, value in more.items() if value}}
    if any(_subject(each) == subject for each in home.listed("exports")):
        raise click.ClickException(f"the account {home.account.name} exports {subject} already")
    home.add("exports", whole)
    _print(session, "Export", whole)


@click.command("edit")
@click.argument("subject")
@_ACCOUNT
@choosing.OPERATOR
@click.option("--description", help="Its description.")
@click.option("--url", help="A URL with more information.")
@_POSITION
@click.option("--advertise/--no-advertise", default=None, help="Show it to others.")
@command
@click.pass_obj
def export_edit(
    session: Session,
    subject: str,
    account: str,
    operator: str,
    description: str | None,
    url: str | None,
    token_position: int | None,
    advertise: bool | None,
) -> None:
    """Change the export of SUBJECT."""
    home = _Home(operator, account)
    entry = home.one("exports", _subject, subject)
    given = {
        "description": description,
        "info_url": url,
        "account_token_position": token_position,
        "advertise": advertise,
    }
    entry |= {key: value for key, value in given.items() if value is not None}
    home.save()
    _print(session, "Export", entry)


@click.command("info")
@click.argument("subject", default="")
@_ACCOUNT
@choosing.OPERATOR
@command
@click.pass_obj
def export_info(session: Session, subject: str, account: str, operator: str) -> None:
    """Show the export of SUBJECT."""
    _print(session, "Export", _Home(operator, account).one("exports", _subject, subject))


@click.command("ls")
@_ACCOUNT
@choosing.OPERATOR
@command
@click.pass_obj
def export_ls(session: Session, account: str, operator: str) -> None:
    """List the exports of ACCOUNT."""
    found = _Home(operator, account).listed("exports")
    if session.as_json:
        print_json(found)
        return
    rows = [
        (
            str(each.get("name", "")),
            str(each.get("type", "")),
            _subject(each),
            "yes" if each.get("token_req") else "",
            "yes" if each.get("advertise") else "",
            str(each.get("account_token_position") or ""),
            str(len(each.get("revocations") or ()) or ""),
        )
        for each in found
    ]
    columns = (
        "Name",
        "Kind",
        "Subject",
        "Activation",
        "Advertised",
        "Token position",
        "Revocations",
    )
    print_table(columns, rows)


@click.command("rm")
@click.argument("subject")
@_ACCOUNT
@choosing.OPERATOR
@choosing.FORCE
@command
@click.pass_obj
def export_rm(session: Session, subject: str, account: str, operator: str, force: bool) -> None:
    """Remove the export of SUBJECT. Imports of it no longer work after a push."""
    home = _Home(operator, account)
    entry = home.one("exports", _subject, subject)
    if not force:
        confirm(f"Really remove the export of {_subject(entry)}?")
    home.remove("exports", entry)
    _removed(session, _subject(entry))


# -- imports


@click.command("add")
@click.argument("name")
@click.argument("subject")
@_ACCOUNT
@choosing.OPERATOR
@click.option("--source", required=True, help="The exporting account: its public key, or name.")
@click.option("--local", default="", help="The subject here; otherwise the same.")
@click.option("--share", is_flag=True, help="Share the identity of clients with the exporter.")
@click.option("--traceable", is_flag=True, help="Let traces of messages go on.")
@_SERVICE
@click.option(
    "--activation",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the exporter's activation token.",
)
@command
@click.pass_obj
def import_add(
    session: Session,
    name: str,
    subject: str,
    account: str,
    operator: str,
    source: str,
    local: str,
    share: bool,
    traceable: bool,
    service: bool,
    activation: Path | None,
) -> None:
    """Import the SUBJECT of another account into ACCOUNT, as NAME."""
    from pelton.nkeys import ACCOUNT, is_public, read_jwt

    home = _Home(operator, account)
    if not is_public(source, ACCOUNT):
        source = home.store.account(home.operator.name, source).key
    entry: dict[str, Any] = {"name": name, "subject": subject, "account": source}
    entry["type"] = "service" if service else "stream"
    if activation is not None:
        entry["token"] = read_jwt(read_text_input(activation, encoding="utf-8"))
    more = {"local_subject": local, "share": share, "allow_trace": traceable}
    entry |= {key: value for key, value in more.items() if value}
    if any(_local(each) == _local(entry) for each in home.listed("imports")):
        raise click.ClickException(
            f"the account {home.account.name} imports {_local(entry)} already"
        )
    home.add("imports", entry)
    _print(session, "Import", entry)


@click.command("edit")
@click.argument("subject")
@_ACCOUNT
@choosing.OPERATOR
@click.option("--local", help="The subject here.")
@click.option(
    "--share/--no-share", default=None, help="Share the identity of clients with the exporter."
)
@click.option("--traceable/--no-traceable", default=None, help="Let traces of messages go on.")
@command
@click.pass_obj
def import_edit(
    session: Session,
    subject: str,
    account: str,
    operator: str,
    local: str | None,
    share: bool | None,
    traceable: bool | None,
) -> None:
    """Change the import with the local SUBJECT."""
    home = _Home(operator, account)
    entry = home.one("imports", _local, subject)
    given = {"local_subject": local, "share": share, "allow_trace": traceable}
    entry |= {key: value for key, value in given.items() if value is not None}
    home.save()
    _print(session, "Import", entry)


@click.command("info")
@click.argument("subject", default="")
@_ACCOUNT
@choosing.OPERATOR
@command
@click.pass_obj
def import_info(session: Session, subject: str, account: str, operator: str) -> None:
    """Show the import with the local SUBJECT."""
    _print(session, "Import", _Home(operator, account).one("imports", _local, subject))


@click.command("ls")
@_ACCOUNT
@choosing.OPERATOR
@command
@click.pass_obj
def import_ls(session: Session, account: str, operator: str) -> None:
    """List the imports of ACCOUNT."""
    home = _Home(operator, account)
    found = home.listed("imports")
    if session.as_json:
        print_json(found)
        return
    names = {
        home.store.account(home.operator.name, each).key: each
        for each in home.store.accounts(home.operator.name)
    }
    rows = [
        (
            str(each.get("name", "")),
            str(each.get("type", "")),
            names.get(str(each.get("account")), str(each.get("account", ""))),
            _local(each),
            _subject(each),
            "yes" if each.get("allow_trace") else "",
            "yes" if each.get("share") else "",
        )
        for each in found
    ]
    columns = ("Name", "Kind", "Source", "Local subject", "Remote subject", "Traceable", "Sharing")
    print_table(columns, rows)


@click.command("rm")
@click.argument("subject")
@_ACCOUNT
@choosing.OPERATOR
@choosing.FORCE
@command
@click.pass_obj
def import_rm(session: Session, subject: str, account: str, operator: str, force: bool) -> None:
    """Remove the import with the local SUBJECT."""
    home = _Home(operator, account)
    entry = home.one("imports", _local, subject)
    if not force:
        confirm(f"Really remove the import of {_local(entry)}?")
    home.remove("imports", entry)
    _removed(session, _local(entry))


# -- mappings


@click.command("add")
@_ACCOUNT
@click.argument("source", default="")
@click.argument("target", default="")
@click.argument("weight", type=Whole(1, 100), default=100)
@click.argument("cluster", default="")
@choosing.OPERATOR
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help='A JSON file: {"SOURCE": [{"subject": "TARGET", "weight": 100}]}.',
)
@command
@click.pass_obj
def mapping_add(
    session: Session,
    account: str,
    source: str,
    target: str,
    weight: int,
    cluster: str,
    operator: str,
    config: Path | None,
) -> None:
    """Map the subject SOURCE of ACCOUNT to TARGET, for WEIGHT per cent of the messages (100)."""
    home = _Home(operator, account)
    if config is not None:
        added = _mappings(config)
    elif source and target:
        added = {
            source: [
                {"subject": target, "weight": weight, **({"cluster": cluster} if cluster else {})}
            ]
        }
    else:
        raise click.UsageError("Missing argument 'SOURCE' or 'TARGET'")
    mappings = home.account.nats.setdefault("mappings", {})
    for subject, targets in added.items():
        _check(subject, targets)
        mappings[subject] = [*mappings.get(subject, ()), *targets]
    home.save()
    _show_mappings(session, {subject: mappings[subject] for subject in added})


def _mappings(path: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        found = json.loads(read_input(path))
    except ValueError as error:
        raise click.UsageError(f"{path}: {error}") from None
    sound = isinstance(found, dict) and all(
        isinstance(targets, list) and all(isinstance(t, dict) and "subject" in t for t in targets)
        for targets in found.values()
    )
    if not sound:
        raise click.UsageError(f'{path}: expected {{"SOURCE": [{{"subject": "TARGET"}}]}}')
    return dict(found)


def _check(source: str, targets: Sequence[Mapping[str, Any]]) -> None:
    import secrets

    from pelton.engine.base.transforms import TransformError, parse

    for target in targets:
        try:
            parse(source, str(target["subject"]), secrets.randbelow)
        except TransformError as error:
            raise click.UsageError(f'"{source}" to "{target["subject"]}": {error}') from None


def _show_mappings(session: Session, mappings: Mapping[str, Any]) -> None:
    if session.as_json:
        print_json(mappings)
        return
    rows = [
        (
            source,
            str(each.get("subject", "")),
            str(each.get("weight") or 100),
            str(each.get("cluster") or ""),
        )
        for source, targets in mappings.items()
        for each in targets
    ]
    print_table(("Source", "Target", "Weight", "Cluster"), rows, right=frozenset(("Weight",)))


@click.command("ls")
@_ACCOUNT
@choosing.OPERATOR
@command
@click.pass_obj
def mapping_ls(session: Session, account: str, operator: str) -> None:
    """List the mappings of ACCOUNT."""
    _show_mappings(session, _Home(operator, account).account.nats.get("mappings") or {})


def _mapping(account: Entity, source: str) -> str:
    found = account.nats.get("mappings") or {}
    if not source and len(found) == 1:
        return str(next(iter(found)))
    if source not in found:
        raise click.ClickException(
            f"the account {account.name} has no mapping of {source}".rstrip()
        )
    return source


@click.command("info")
@_ACCOUNT
@click.argument("source", default="")
@choosing.OPERATOR
@command
@click.pass_obj
def mapping_info(session: Session, account: str, source: str, operator: str) -> None:
    """Show the mapping of SOURCE."""
    home = _Home(operator, account)
    subject = _mapping(home.account, source)
    _show_mappings(session, {subject: home.account.nats["mappings"][subject]})


@click.command("rm")
@_ACCOUNT
@click.argument("source", default="")
@choosing.OPERATOR
@command
@click.pass_obj
def mapping_rm(session: Session, account: str, source: str, operator: str) -> None:
    """Remove the mapping of SOURCE."""
    home = _Home(operator, account)
    subject = _mapping(home.account, source)
    del home.account.nats["mappings"][subject]
    home.save()
    _removed(session, subject)
