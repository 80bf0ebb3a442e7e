"""The command tree: the commands, one line of help for each, and their modules.

A command's module is loaded only when the command is used.
"""

from importlib import import_module
from typing import Any

import click

from penstock import __version__
from penstock.cli.session import Session
from penstock.cli.values import DURATION

# name -> (one line of help, module, attribute)
Row = tuple[str, str, str]

TOP: dict[str, Row] = {
    "run": ("Start server, log shipper and Spark tables in one command.", "programs", "run"),
    "server": ("Start a server (options: penstock server --help).", "programs", "server"),
    "pub": ("Publish messages.", "messages", "pub"),
    "sub": ("Print the messages of a subject.", "messages", "sub"),
    "req": ("Send a request, and print the answer.", "messages", "req"),
    "stream": ("Streams: ls, add, info, rm, purge, get, backup, restore.", "tree", "stream"),
    "consumer": ("Consumers: ls, add, info, rm, next.", "tree", "consumer"),
    "account": ("Usage and limits of the account: info.", "tree", "account"),
    "apply": ("Make streams, consumers, buckets as files declare.", "configuration", "apply"),
    "plan": ("Show what apply would do.", "configuration", "plan"),
    "diff": ("The same as plan.", "configuration", "plan"),
    "export": ("Print streams and consumers as files for apply.", "configuration", "export"),
    "validate": ("Check files for apply without a server.", "configuration", "validate"),
    "pipeline": ("A pipeline in a file: check, run, status, init.", "tree", "pipeline"),
    "spark": ("Spark: watch streaming queries, package for a cluster.", "tree", "spark"),
    "store": (
        "A store folder, without a server: ls, check, verify, repair, dump, backup, restore.",
        "store_tree",
        "store",
    ),
    "tables": ("Maintain the tables that Spark writes: maintain, expire.", "tree", "tables"),
}
STREAM: dict[str, Row] = {
    "ls": ("List streams.", "streams", "ls"),
    "add": ("Create a stream.", "streams", "add"),
    "info": ("Show a stream.", "streams", "info"),
    "rm": ("Remove a stream with all its messages.", "streams", "rm"),
    "purge": ("Remove messages of a stream.", "streams", "purge"),
    "get": ("Print a stored message.", "streams", "get"),
    "backup": ("Back up a stream into a folder.", "backups", "backup"),
    "restore": ("Restore a stream from a backup.", "backups", "restore"),
}
CONSUMER: dict[str, Row] = {
    "ls": ("List the consumers of a stream.", "consumers", "ls"),
    "add": ("Create a consumer.", "consumers", "add"),
    "info": ("Show a consumer.", "consumers", "info"),
    "rm": ("Remove a consumer.", "consumers", "rm"),
    "next": ("Fetch messages from a pull consumer and acknowledge them.", "consumers", "next_"),
}
ACCOUNT: dict[str, Row] = {
    "info": ("Show the usage and the limits of the account.", "account", "info"),
}
SPARK: dict[str, Row] = {
    "watch": ("Show the progress of streaming queries.", "spark", "watch"),
    "package": ("Make an archive for the machines of a cluster.", "spark_package", "package"),
    "prepare": ("Make sessions on this machine start sooner.", "spark_prepare", "prepare"),
}
PIPELINE: dict[str, Row] = {
    "check": ("Check a file and draw its graph.", "pipeline", "check"),
    "run": ("Run a pipeline until Ctrl-C, or once.", "pipeline", "run"),
    "status": ("Show the progress of a pipeline.", "pipeline", "status"),
    "init": ("Print a first file.", "pipeline", "init"),
}
TABLES: dict[str, Row] = {
    "maintain": ("Compact Delta tables, and remove unused files.", "tables", "maintain"),
    "expire": ("Expire old snapshots of Iceberg tables.", "iceberg_tables", "expire"),
}


class Lazy(click.Group):
    """A group whose commands are listed in a table and imported when they are used."""

    rows: dict[str, Row]

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order of the table."""
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command with a name; None if there is none."""
        row = self.rows.get(cmd_name)
        if row is None:
            return None
        found = getattr(import_module(f"penstock.cli.{row[1]}"), row[2])
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of the help text, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row[0]) for name, row in self.rows.items()])


def _group(name: str, text: str, rows: dict[str, Row]) -> Lazy:
    made = Lazy(name=name, help=text, no_args_is_help=True)
    made.rows = rows
    return made


stream = _group("stream", "Look at streams and change them.", STREAM)
consumer = _group("consumer", "Look at consumers and change them.", CONSUMER)
account = _group("account", "Look at the account.", ACCOUNT)
pipeline = _group("pipeline", "Sources, steps and sinks out of one file, on Spark.", PIPELINE)
tables = _group("tables", "Look after the tables that Spark writes.", TABLES)
spark = _group(
    "spark", "Look at streaming queries of Spark, and bring Penstock to a cluster.", SPARK
)


@click.group(
    cls=Lazy, no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="penstock %(version)s")
@click.option(
    "-s",
    "--server",
    default="nats://127.0.0.1:4222",
    envvar="NATS_URL",
    show_default=True,
    show_envvar=True,
    help="URL of the server, or several with commas.",
)
@click.option("--user", default="", envvar="NATS_USER", help="User name.")
@click.option("--password", default="", envvar="NATS_PASSWORD", help="Password.")
@click.option("--token", default="", envvar="NATS_TOKEN", help="Token.")
@click.option("--creds", default="", envvar="NATS_CREDS", help="File with a user's JWT and seed.")
@click.option("--nkey", default="", envvar="NATS_NKEY", help="File with the seed of an nkey user.")
@click.option("--tlscert", default="", envvar="NATS_CERT", help="Certificate of the client.")
@click.option("--tlskey", default="", envvar="NATS_KEY", help="Key of the certificate.")
@click.option("--tlsca", default="", envvar="NATS_CA", help="Certificates to trust.")
@click.option("--tlsfirst", is_flag=True, help="Do the TLS handshake before the server sends INFO.")
@click.option("--domain", default="", help="JetStream domain.")
@click.option(
    "--timeout",
    type=DURATION,
    default="5s",
    show_default=True,
    help="How long to wait for answers.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.pass_context
def penstock(ctx: click.Context, /, **options: Any) -> None:
    """Publish, subscribe, and manage streams of a NATS server."""
    ctx.obj = Session(**options)


penstock.rows = TOP
