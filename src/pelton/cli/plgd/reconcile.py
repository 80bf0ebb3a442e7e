"""``pelton plgd reconcile``: compares a stream with an event store or a gateway, and publishes lacking events."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE, FAILED
from pelton.cli.output import form_in_use, print_json, print_json_line, print_table
from pelton.cli.plgd.lines import needs, no_stream
from pelton.cli.plgd.stores import TARGET, contents, open_store, pem
from pelton.cli.progress import stages_bar
from pelton.cli.session import Session, command
from pelton.cli.values import DURATION
from pelton.core.base.quoting import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pelton.errors import PeltonError
    from pelton.plgd.gateway import ClientTls, Token
    from pelton.plgd.reconcile import Report, Source

COLUMNS = ("device", "of", "cause", "versions", "missing", "repaired", "state", "not repaired")
RIGHT = frozenset({"missing", "repaired", "repairable", "state"})
HINTS = [
    ("UNAUTHENTICATED", "give a token that is valid now; --token-file is read for each call"),
    ("WRONG_VERSION_NUMBER", "if it has no TLS, give --plaintext"),
    ("Expected SETTINGS frame", "if it has TLS, leave out --plaintext"),
    ("CERTIFICATE_VERIFY_FAILED", "--ca names the certificates to trust"),
    ("UNIMPLEMENTED", "no gateway of a hub is there"),
    ("UNAVAILABLE", "nothing is lost: run it again when the gateway answers"),
    ("DEADLINE_EXCEEDED", "nothing is lost: run it again when the gateway is faster"),
]
"""What to do, by a word of the error; the first that fits."""


@click.command()
@click.option("--store", "place", default="", help="Event store: a SQLite file, or mongodb://...")
@click.option("--gateway", "target", default="", help="Or a gateway: host:port.")
@click.option(
    "--token", default="", envvar="PLGD_TOKEN", show_envvar=True, help="Token for the gateway."
)
@click.option("--token-file", default="", type=click.Path(), help="File with the token.")
@click.option(
    "--owner-claim", default="sub", show_default=True, help="The token's claim with the owner."
)
@click.option(
    "--ca", default="", type=click.Path(), help="Certificates to trust at the gateway (PEM)."
)
@click.option("--cert", default="", type=click.Path(), help="Certificate for the gateway (PEM).")
@click.option("--key", default="", type=click.Path(), help="Its key.")
@click.option("--plaintext", is_flag=True, help="Ask the gateway without TLS.")
@click.option("--owner", default="", help="Only the devices of this owner (the owner claim).")
@click.option("--stream", default="EVENTS", show_default=True, help="The stream of the events.")
@click.option(
    "--tables",
    default="",
    type=click.Path(),
    help="Compare with the tables of the events in this folder; the stream is only published to.",
)
@click.option("--dry-run", is_flag=True, help="Publish nothing.")
@click.option(
    "--check", is_flag=True, help="Publish nothing; exit status 1 if versions are missing."
)
@click.option(
    "--commands",
    is_flag=True,
    help="Also publish commands that waited. A hub that listens sends them to its devices again!",
)
@click.option(
    "--refill",
    is_flag=True,
    help="Also publish events that limits or a purge of the stream removed.",
)
@click.option(
    "--grace",
    type=DURATION,
    default="1m",
    show_default=True,
    help="Younger events may be on their way.",
)
@command
@click.pass_obj
def reconcile(session: Session, /, stream: str, owner: str, **asked: Any) -> int:
    """Find the events and registrations that a stream lacks, say why, and publish them.

    The truth is an event store (--store), or a gateway of a hub or ours (--gateway). Missing events are
    published as they were, and where the store keeps only states, the state; headers say so
    (Pelton-Repair). A run that was killed is begun again. Versions that stay missing are listed
    with the reason.

    \b
    pelton plgd reconcile --store plgd.db --dry-run
    pelton plgd reconcile --gateway hub.example.com:443 --token-file token.jwt
    """
    if bool(asked["place"]) == bool(asked["target"]):
        raise click.UsageError("give --store or --gateway")
    try:
        from pelton.plgd.reconcile import Policy, Reconciler
    except ImportError as problem:
        raise needs(problem) from None
    policy = Policy(
        commands=asked["commands"], refill=asked["refill"], grace_s=asked["grace"] / 1e9
    )
    with ExitStack() as stack:
        stack.enter_context(_in_words(stream))
        source = _source(stack, owner, asked)
        client = stack.enter_context(session.connect())
        tell = stack.enter_context(stages_bar())
        reconciler = Reconciler(client, source, stream=stream, policy=policy, progress=tell)
        seen = None
        if asked["tables"]:
            from pelton.plgd.reconcile.lake import sightings_of_tables

            seen = sightings_of_tables(
                asked["tables"],
                progress=lambda done, total: tell("reading the tables", done, total),
            )
        report = reconciler.run(seen, repair=not (asked["dry_run"] or asked["check"]))
    _show(session, report, planned=asked["dry_run"] or asked["check"])
    return FAILED if asked["check"] and (report.missing or report.registrations) else DONE


def _source(stack: ExitStack, owner: str, asked: dict[str, Any]) -> Source:
    """The source that the options name."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its lines say less than the error
    from pelton.plgd.gateway import BlockingGatewayClient, InvalidTokenError, claimed_owner
    from pelton.plgd.reconcile import GatewaySource, StoreSource

    if asked["place"]:
        store = open_store(asked["place"])
        stack.callback(store.close)
        name = asked["place"].rpartition("@")[2]  # without a password
        return StoreSource(store, owner=owner or None, name=name, waiting=_told_once())
    if not TARGET.fullmatch(asked["target"]):
        raise click.UsageError(f"--gateway is host:port, not {asked['target']!r}")
    token: Token = asked["token"]
    if asked["token_file"]:
        token = _token_in(asked["token_file"])  # asked for each call, so a new one is taken
    if not (first := token if isinstance(token, str) else token()):
        raise click.UsageError("a gateway needs --token or --token-file")
    try:
        claimed = claimed_owner(first, asked["owner_claim"])
    except InvalidTokenError as error:
        raise click.UsageError(str(error)) from None
    if owner not in ("", claimed):
        raise click.UsageError(f"the token is of the owner {claimed!r}, not of {owner!r}")
    client = BlockingGatewayClient(asked["target"], token, tls=_tls(asked))
    stack.callback(client.close)
    return GatewaySource(client, claimed, waiting=_told_once())


def _token_in(path: str) -> Callable[[], str]:
    """A function that reads the token from a file at each call."""
    return lambda: contents(path, "the token").decode(errors="replace").strip()


def _told_once() -> Callable[[PeltonError], None]:
    """The function that reports that a source is waited for."""
    told = False

    def tell(error: PeltonError) -> None:
        nonlocal told
        if not told:
            click.echo(f"waiting: {error}", err=True)
        told = True

    return tell


@contextmanager
def _in_words(stream: str) -> Iterator[None]:
    """Add advice to the errors of gateways and streams."""
    from pelton.errors import StreamNotFoundError
    from pelton.plgd.gateway import GatewayError

    try:
        yield
    except GatewayError as error:
        hints = [text for word, text in HINTS if word in str(error)]
        raise click.ClickException("; ".join([str(error), *hints[:1]])) from None
    except StreamNotFoundError:
        raise no_stream(stream) from None


def _tls(asked: dict[str, Any]) -> ClientTls | None:
    """How to trust the gateway; None for no TLS."""
    from pelton.plgd.gateway import ClientTls

    if asked["plaintext"]:
        if asked["ca"] or asked["cert"]:
            raise click.UsageError("--plaintext excludes --ca and --cert")
        return None
    if bool(asked["cert"]) != bool(asked["key"]):
        raise click.UsageError("--cert and --key go together")
    read = {
        name: pem(asked[name], f"--{name}") if asked[name] else None
        for name in ("ca", "cert", "key")
    }
    return ClientTls(read["ca"], read["cert"], read["key"])


def _show(session: Session, report: Report, *, planned: bool) -> None:
    """Print the findings and the counts."""
    findings = [finding.as_data() for finding in report.findings]
    registrations = [each.as_data() for each in report.registrations]
    summary = report.summary()
    if form_in_use() == "jsonl":
        for each in findings:
            print_json_line(each)
        for each in registrations:
            print_json_line({"registration": each})
        print_json_line({"summary": summary})
        return
    if session.as_json:
        print_json({"findings": findings, "registrations": registrations, "summary": summary})
        return
    if findings:
        names = tuple("repairable" if planned and n == "repaired" else n for n in COLUMNS)
        print_table(names, [_cells(each) for each in findings], right=RIGHT)
    if form_in_use() == "csv":
        return
    if findings:
        print()
    causes = ", ".join(f"{count:,} {cause}" for cause, count in summary["causes"].items())
    print(
        f"{summary['messages']:,} messages, {summary['aggregates']:,} aggregates of"
        f" {summary['devices']:,} devices: {report.missing:,} versions missing"
        + (f" ({causes})" if causes else "")
    )
    for lost in report.registrations:
        print(shown(f"registration missing: device {lost.device_id} of owner {lost.owner}"))
    for reason, count in summary["reasons"].items():
        print(f"{count:,} not repaired: {reason}")
    if planned:
        print(f"{summary['repairable']:,} can be repaired; nothing was published")
    else:
        print(
            f"{report.published_events:,} events and {report.published_states:,} states published"
            + (f", {report.published_registrations:,} registrations" if registrations else "")
        )


def _cells(finding: dict[str, Any]) -> list[str]:
    """A row of the table."""
    first, last = finding["first_version"], finding["last_version"]
    state = finding["state_version"]
    return [
        finding["device_id"],
        finding["href"] or finding["kind"] or finding["aggregate_id"],
        finding["cause"],
        str(first) if first == last else f"{first}-{last}",
        str(finding["missing"]),
        str(finding["repaired"]),
        "" if state is None else str(state),
        "; ".join(f"{each['versions']}: {each['reason']}" for each in finding["unrepaired"]),
    ]
