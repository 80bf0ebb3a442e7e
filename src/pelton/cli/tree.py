"""The command tree: the commands, one line of help for each, and their modules.

A command's module is loaded only when the command is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

from pelton import __version__
from pelton.cli import commands, other_names
from pelton.cli.session import FORMS, Session, set_form
from pelton.cli.values import DURATION, Word

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from pelton.cli.commands import Row


class Lazy(click.Group):
    """A group whose commands are listed in a table and imported when they are used."""

    rows: dict[str, Row]
    table = ""  # the name in the tables, if it is not that of the command

    @property
    def aliases(self) -> dict[str, str]:
        """Other names of the commands."""
        return other_names.ALIASES.get(self.table or self.name or "", {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the table."""
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with a name; None if there is none."""
        name = self.aliases.get(cmd_name, cmd_name)
        row = self.rows.get(name)
        if row is None:
            return None
        found = getattr(import_module(f"pelton.cli.{row[1]}"), row[2])
        assert isinstance(found, click.Command)
        formats = [each for each in found.params if "--format" in each.opts]
        if len(formats) > 1:  # the command has another meaning for it
            found.params = [each for each in found.params if each.callback is not set_form]
        if ctx.resilient_parsing:
            from pelton.cli.completion import offer_names

            offer_names(self.name or "", found)
        name = self.aliases.get(cmd_name, cmd_name)
        if name in commands.READERS.get(self.table or self.name or "", ()):
            from pelton.cli.store.serving import take_options

            take_options(found)
        if not isinstance(found, click.Group) and row[1] != "programs":
            from pelton.cli.placement import take_connection_options

            take_connection_options(found, pelton)
            found.format_epilog = _write_examples  # type: ignore[method-assign]  # of this command
        return found

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The rest of the words; options of a verb may stand before it."""
        if self.rows is not commands.TOP:
            from pelton.cli.placement import behind_the_verb

            args = behind_the_verb(self, ctx, args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; ReaderGone when its output is closed, which click takes for a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            from pelton.cli.failures import ReaderGone

            raise ReaderGone from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the words name; UsageError with the nearest one for an unknown name."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(self._unknown(args[0], ctx), ctx)
        return super().resolve_command(ctx, args)

    def _unknown(self, name: str, ctx: click.Context) -> str:
        from difflib import get_close_matches

        text = f"No such command {name!r}"
        path = f"{ctx.command_path} {name}".partition(" ")[2]
        instead = other_names.ELSEWHERE.get(path)
        if instead is not None and instead.startswith("use "):
            return f"{text}; {instead}"
        if instead is None:
            names = [*self.rows, *self.aliases]
            near = get_close_matches(name, names, 1, 0.6) or [
                each for each in names if len(name) > 1 and each.startswith(name)
            ]
            instead = self.aliases.get(near[0], near[0]) if near else None
        return text if instead is None else f"{text}; did you mean {instead!r}?"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names that begin so, without importing any command."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=row[0])
            for name, row in self.rows.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the name of the cheat sheet."""
        if self.rows is commands.TOP:
            return
        from pelton.cli.examples import write_sheet

        write_sheet(formatter, (self.name or "").rstrip("_"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the help text, without importing any command."""
        parts = {"Commands": " ".join(self.rows)}
        if self.rows is commands.TOP:
            parts = commands.SECTIONS
        widest = max(map(len, self.rows))
        for title, names in parts.items():
            with formatter.section(title):
                rows = [(name.ljust(widest), self.rows[name][0]) for name in names.split()]
                formatter.write_dl(rows)


def _write_examples(ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write lines that show the command, whichever of its names was typed."""
    from pelton.cli.examples import write_examples

    words: list[str] = []
    here: click.Context | None = ctx
    while here is not None and here.parent is not None:
        group, name = here.parent.command, here.info_name or ""
        words.insert(0, group.aliases.get(name, name) if isinstance(group, Lazy) else name)
        here = here.parent
    write_examples(ctx, formatter, words)


def _group(name: str, text: str, rows: dict[str, Row], *, table: str = "") -> Lazy:
    made = Lazy(name=name, help=text, no_args_is_help=True)
    made.rows = rows
    made.table = table
    return made


stream = _group("stream", "Look at streams and change them.", commands.STREAM)
consumer = _group("consumer", "Look at consumers and change them.", commands.CONSUMER)
for _each in (stream, consumer):
    _each.params.append(
        click.Option(
            ["-a", "--all"],
            is_flag=True,
            expose_value=False,
            help="Accepted for scripts: streams of buckets and object stores are always listed.",
        )
    )
stream_cluster = _group(
    "cluster", "Leaders and copies in a cluster.", commands.STREAM_CLUSTER, table="stream_cluster"
)
consumer_cluster = _group(
    "cluster", "Leaders in a cluster.", commands.CONSUMER_CLUSTER, table="consumer_cluster"
)
account = _group("account", "Look at the account.", commands.ACCOUNT)
account_report = _group(
    "report", "Report on the account.", commands.ACCOUNT_REPORT, table="account_report"
)
kv = _group("kv", "Keep values in key-value buckets.", commands.KV)
object_ = _group("object", "Keep files in object stores.", commands.OBJECT)
context = _group("context", "Keep URLs and credentials under names.", commands.CONTEXT)
service = _group("service", "Find services, call them, and offer them.", commands.SERVICE)
counter = _group("counter", "Read and change counters in streams.", commands.COUNTER)
schema = _group("schema", "JSON schemas of messages.", commands.SCHEMA)
errors = _group("errors", "Look up what the errors of JetStream mean.", commands.ERRORS)
servers = _group("server", "Ask running servers, as a user of the system account.", commands.SERVER)
server_check = _group(
    "check", "Check health, for Nagios and Prometheus.", commands.SERVER_CHECK, table="server_check"
)
plgd = _group("plgd", "Work with the events of a plgd hub.", commands.PLGD)
server_report = _group(
    "report",
    "Compare servers. Needs a system account's user.",
    commands.SERVER_REPORT,
    table="server_report",
)
server_request = _group(
    "request",
    "Print what servers say. Needs a system account's user.",
    commands.SERVER_REQUEST,
    table="server_request",
)
server_watch = _group(
    "watch",
    "Follow servers. Needs a system account's user.",
    commands.SERVER_WATCH,
    table="server_watch",
)
server_watch_api = _group(
    "api",
    "Follow requests to JetStream. Needs a system account's user.",
    commands.SERVER_WATCH_API,
    table="server_watch_api",
)
server_account = _group(
    "account",
    "Accounts of servers. Needs a system account's user.",
    commands.SERVER_ACCOUNT,
    table="server_account",
)
server_cluster = _group(
    "cluster",
    "Clusters of servers. Needs a system account's user.",
    commands.SERVER_CLUSTER,
    table="server_cluster",
)
server_config = _group(
    "config",
    "Configurations of servers. Needs a system account's user.",
    commands.SERVER_CONFIG,
    table="server_config",
)
bench = _group("bench", "Measure how fast a server is, with many clients.", commands.BENCH)
bench_service = _group(
    "service", "Measure requests and answers.", commands.BENCH_SERVICE, table="bench_service"
)
bench_js = _group("js", "Measure streams and consumers.", commands.BENCH_JS)
bench_js_pub = _group(
    "pub", "Measure publishes into a stream.", commands.BENCH_JS_PUB, table="bench_js_pub"
)
bench_js_get = _group(
    "get", "Measure reads of stored messages.", commands.BENCH_JS_GET, table="bench_js_get"
)
bench_kv = _group("kv", "Measure a key-value bucket.", commands.BENCH_KV, table="bench_kv")
auth = _group("auth", "Operators, accounts, users and their keys, as JWTs.", commands.AUTH)
auth_operator = _group(
    "operator", "Who vouches for accounts.", commands.AUTH_OPERATOR, table="auth_operator"
)
auth_operator_keys = _group(
    "keys", "Signing keys of operators.", commands.AUTH_OPERATOR_KEYS, table="auth_operator_keys"
)
auth_account = _group(
    "account", "Accounts of an operator.", commands.AUTH_ACCOUNT, table="auth_account"
)
auth_account_keys = _group(
    "keys", "Signing keys of accounts.", commands.AUTH_ACCOUNT_KEYS, table="auth_account_keys"
)
auth_account_exports = _group(
    "exports",
    "What other accounts may import.",
    commands.AUTH_ACCOUNT_EXPORTS,
    table="auth_account_exports",
)
auth_account_imports = _group(
    "imports",
    "What comes from other accounts.",
    commands.AUTH_ACCOUNT_IMPORTS,
    table="auth_account_imports",
)
auth_account_mappings = _group(
    "mappings",
    "Subject mappings of accounts.",
    commands.AUTH_ACCOUNT_MAPPINGS,
    table="auth_account_mappings",
)
auth_user = _group("user", "Users of accounts.", commands.AUTH_USER, table="auth_user")
auth_nkey = _group(
    "nkey", "Keys, signatures and sealed files.", commands.AUTH_NKEY, table="auth_nkey"
)
audit = _group("audit", "Check a whole deployment.", commands.AUDIT)
pipeline = _group(
    "pipeline", "Sources, steps and sinks out of one file, on Spark.", commands.PIPELINE
)
tables = _group("tables", "Look after the tables that Spark writes.", commands.TABLES)
spark = _group(
    "spark", "Look at streaming queries of Spark, and bring Pelton to a cluster.", commands.SPARK
)


COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")


def _contexts(ctx: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The names of contexts that begin so."""
    from pelton.client.protocol.contexts import context_names

    return [name for name in context_names() if name.startswith(incomplete)]


@click.group(
    cls=Lazy, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="pelton %(version)s")
@click.option(
    "-s",
    "--server",
    default="",
    envvar="NATS_URL",
    show_default="of the context, or nats://127.0.0.1:4222",
    show_envvar=True,
    help="URL of the server, or several with commas.",
)
@click.option(
    "--context",
    default="",
    envvar="NATS_CONTEXT",
    show_envvar=True,
    shell_complete=_contexts,
    help="Context with URL and credentials; without --server, the selected one by default.",
)
@click.option("--no-context", is_flag=True, help="Do not use the selected context.")
@click.option("--user", default="", envvar="NATS_USER", help="User name.")
@click.option("--password", default="", envvar="NATS_PASSWORD", help="Password.")
@click.option("--token", default="", envvar="NATS_TOKEN", help="Token.")
@click.option("--creds", default="", envvar="NATS_CREDS", help="File with a user's JWT and seed.")
@click.option("--nkey", default="", envvar="NATS_NKEY", help="File with the seed of an nkey user.")
@click.option("--jwt", default="", envvar="NATS_JWT", help="A user's JWT, or the file with it.")
@click.option(
    "--seed", default="", envvar="NATS_SEED", help="The user's seed, or the file with it."
)
@click.option("--tlscert", default="", envvar="NATS_CERT", help="Certificate of the client.")
@click.option("--tlskey", default="", envvar="NATS_KEY", help="Key of the certificate.")
@click.option("--tlsca", default="", envvar="NATS_CA", help="Certificates to trust.")
@click.option(
    "--tlsfirst",
    "--tls-first",
    is_flag=True,
    help="Do the TLS handshake before the server sends INFO.",
)
@click.option(
    "--socks-proxy",
    default="",
    envvar="NATS_SOCKS_PROXY",
    metavar="URL",
    help="Connect through this SOCKS 5 proxy: socks5://[user:password@]host[:port].",
)
@click.option("--domain", "--js-domain", default="", help="JetStream domain.")
@click.option(
    "--js-api-prefix", "api_prefix", default="", help="Prefix of the JetStream API of an import."
)
@click.option(
    "--js-event-prefix", "event_prefix", default="", help="Prefix of the events of an import."
)
@click.option("--inbox-prefix", default="", help="Beginning of the subjects of answers.")
@click.option(
    "--connection-name",
    default="pelton",
    show_default=True,
    help="Name of the connection in the server's list.",
)
@click.option(
    "--timeout",
    type=DURATION,
    default="5s",
    envvar="NATS_TIMEOUT",
    show_default=True,
    help="How long to wait for answers.",
)
@click.option("--trace", is_flag=True, help="Print the lines of the protocol on stderr.")
@click.option(
    "--colors",
    "color",
    type=Word(COLORS),
    default="cyan",
    envvar="NATS_COLOR",
    help="Colour of the heads of tables.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option(
    "--format",
    "form",
    type=Word(FORMS),
    default=None,
    show_default="table",
    help="Form of lists.",
)
@click.pass_context
def pelton(ctx: click.Context, /, form: str | None, **options: Any) -> None:
    """Publish, subscribe, and manage streams of a NATS server.

    The options below may stand before or behind a command. pelton COMMAND --help shows the options of a
    command, pelton cheat TOPIC lines to copy.
    """
    ctx.obj = Session(**options, of_2020=ctx.info_name == "nats")
    ctx.obj.choose_form(form or ("json" if options["as_json"] else _usual_form()))


def _usual_form() -> str:
    """The form that the environment asks for: the variables of the ``nats`` command."""
    if os.environ.get("LLMFORMAT") == "1":
        return "md"
    asked = os.environ.get("NATS_TABLE_FORMAT", "")
    return asked if asked in ("csv", "md") else "table"


pelton.rows = commands.TOP
