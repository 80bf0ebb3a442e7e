"""``pelton plgd run`` and ``backfill``: a hub's events into tables, as they come or from a stream that is there."""

from __future__ import annotations

import contextlib
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pelton.cli.failures import DONE
from pelton.cli.output import print_json_line
from pelton.cli.plgd.alerting import alert_options, back_to, looks, taken, watch_of
from pelton.cli.plgd.beside import OPTION_PREFIX, gateway_asked, gateway_beside
from pelton.cli.plgd.gateway import gateway_options
from pelton.cli.plgd.going_on import Interval, alone_on, beginning
from pelton.cli.plgd.lakes import lake_of, table_options
from pelton.cli.plgd.lines import stream_of
from pelton.cli.plgd.own_server import server_at
from pelton.cli.plgd.trying import Tries, is_final
from pelton.cli.session import Session, command
from pelton.cli.values import Whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pelton.client.sync.jetstream import JetStream
    from pelton.plgd.spark.lake import Counts, Lake
    from pelton.plgd.spark.running import Source

LOOK_SECONDS = 0.2
FOLDER = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
STREAM = click.option("--stream", default="EVENTS", show_default=True, help="The stream.")
BATCH = click.option(
    "--batch",
    type=Whole(1),
    default=500_000,
    show_default=True,
    help="Messages of a batch at most.",
)
MASTER = click.option("--master", default="local[2,4]", show_default=True, help="Where Spark runs.")


class Stopped(Exception):  # it is no error
    """A back-fill was asked to stop, and a batch has ended."""


class Progress:
    """Tells of each batch that the tables hold: as a line for a person, or of JSON."""

    def __init__(self, js: JetStream, stream: str, *, as_json: bool) -> None:
        """``js`` is asked how far the stream is."""
        self.js = js
        self.stream = stream
        self.as_json = as_json
        self.began = self.last = time.monotonic()
        self.total = 0
        self.events = 0

    def told(self, number: int, counts: Counts) -> None:
        """A batch is in all tables."""
        now = time.monotonic()
        rate = counts.messages / max(now - self.last, 1e-9)
        self.last = now
        self.total += counts.messages
        self.events += counts.events
        lag = self.lag(counts.last_seq)
        if self.as_json:
            told = vars(counts) | {"batch": number, "rate": round(rate), "lag": lag}
            print_json_line({"event": "batch", **told})
            return
        line = f"batch {number}: {counts.messages:,} messages, {counts.events:,} events"
        if counts.duplicates:
            line += f", {counts.duplicates:,} duplicates"
        if counts.dead_letters:
            line += f", {counts.dead_letters:,} dead letters"
        behind = "the stream does not answer" if lag is None else f"{lag:,} behind"
        click.echo(f"{line}; {rate:,.0f}/s, {behind}")

    def lag(self, last_seq: int) -> int | None:
        """How far the stream is ahead of a sequence; None if it does not say."""
        from pelton.errors import PeltonError

        try:
            return max(0, self.js.stream_info(self.stream).state.last_seq - last_seq)
        except PeltonError:
            return None

    def summary(self, folder: Path, *, stopped: bool) -> None:
        """The counts of the run."""
        seconds = time.monotonic() - self.began
        if self.as_json:
            told = {"messages": self.total, "events": self.events, "seconds": round(seconds, 3)}
            print_json_line({"event": "summary", "stopped": stopped, "folder": str(folder), **told})
            return
        click.echo(f"{folder}: {self.total:,} messages, {self.events:,} events in {seconds:,.1f} s")
        if stopped:
            click.echo("stopped; the next run continues from here")


def source_of(session: Session, url: str, stream: str, *, allow_data_loss: bool = False) -> Source:
    """The stream with the connection that the options ask for."""
    from pelton.plgd.spark.running import Source

    if session.context_in_use() and not session.server:
        raise click.UsageError("give the server with --server: Spark's workers know no contexts")
    named = {
        "user": session.user,
        "password": session.password,
        "token": session.token,
        "creds": session.creds,
        "nkey": session.nkey,
        "tlsCert": session.tlscert,
        "tlsKey": session.tlskey,
        "tlsCa": session.tlsca,
        "domain": session.domain,
        "apiPrefix": session.api_prefix,
        "tlsFirst": "true" if session.tlsfirst else "",
        "failOnDataLoss": "false" if allow_data_loss else "",
    }
    return Source(stream, url, options={name: text for name, text in named.items() if text})


def own_session(log: Path, master: str) -> SparkSession:
    """A session of Spark, whose output goes to a file."""
    from pelton.pipeline.running.supervising import brief
    from pelton.plgd.spark.running import hub_session
    from pelton.spark.java import JavaNotFoundError

    try:
        return hub_session("pelton plgd", master=master, log_file=log)
    except JavaNotFoundError as error:
        raise click.ClickException(str(error)) from None
    except Exception as error:  # of Spark, which says more in its log
        raise click.ClickException(f"Spark does not start: {brief(error)} (see {log})") from None


@click.command()
@FOLDER
@STREAM
@click.option(
    "--once",
    is_flag=True,
    help="Bring the messages that the stream has now into the tables, and end.",
)
@click.option(
    "--allow-data-loss",
    is_flag=True,
    help="Go on if the stream lost messages that were not read yet, or was made again.",
)
@alert_options
@click.option("--every", type=Interval(), default=None, help="The time between batches, as 5s.")
@click.option(
    "--port",
    type=Whole(1, 65535),
    default=4222,
    show_default=True,
    help="Without --server, the port of the server on this machine; a server is started if none listens.",
)
@BATCH
@table_options
@MASTER
@gateway_options(OPTION_PREFIX)
@command
@click.pass_obj
def run(session: Session, /, folder: Path, stream: str, port: int, **given: Any) -> int:
    """Bring the events of a hub into tables as they come.

    FOLDER has the tables, and where the stream was read to. Without --server the server on this machine is
    used; if there is none, one with the stream EVENTS is started for the hub, on FOLDER/hub. Every message is
    in the tables once, whatever is killed: start it again, and it continues. If a server, a disk or a stream
    goes away it waits and goes on. Ctrl-C stops it at the end of a batch. With --gateway-store the command
    also serves what `pelton plgd gateway` does.

    \b
    pelton plgd run ./lake
    pelton --server nats://hub:4222 plgd run ./lake --once
    pelton plgd run ./lake --gateway-store plgd.db --gateway-jwks keys.json --gateway-plaintext
    """
    given["bounds"] = taken(given)
    gateway = gateway_asked(click.get_current_context(), given)
    with ExitStack() as cleanup:
        cleanup.enter_context(alone_on(folder))
        lake = lake_of(folder / "tables", given)
        url = session.server or cleanup.enter_context(server_at(folder / "hub", port))
        allowed = given.pop("allow_data_loss")
        source = source_of(session, url, stream, allow_data_loss=allowed)
        session.server = url
        client = cleanup.enter_context(session.connect(lasting=True))
        info = stream_of(session.jetstream(client), stream)
        checkpoint = (folder / "checkpoint").absolute()
        given["begin"] = beginning(lake, checkpoint, stream, info, allow_data_loss=allowed)
        if gateway is not None:
            beside = cleanup.enter_context(gateway_beside(session, gateway))
        progress = Progress(session.jetstream(client), stream, as_json=session.as_json)
        alerts, bounds = given.pop("alerts"), given.pop("bounds")
        watch = watch_of(client, lake, folder, alerts, stream=stream, bounds=bounds)
        given["then"] = back_to(client, lake, given.pop("twins"), watch)
        look = looks(watch)

        def watched() -> None:
            """The checks between batches."""
            if gateway is not None:
                beside.check()
            look()

        given["look"] = watched
        stopped = run_query(lake, folder, source, progress, **given)
    progress.summary(folder / "tables", stopped=stopped)
    return DONE


def run_query(lake: Lake, folder: Path, source: Source, progress: Progress, **given: Any) -> bool:
    """Run the query until it ends, or is asked to stop; whether it was."""
    from pelton.pipeline.running.supervising import QueryEndedError, stop_signals
    from pelton.spark.session import end_session

    stopping = threading.Event()
    tries = Tries(stopping, as_json=progress.as_json)
    log = folder / "spark.log"
    given["checkpoint"] = str((folder / "checkpoint").absolute())
    with stop_signals(stopping):
        spark = own_session(log, given["master"])
        try:
            while not stopping.is_set():
                try:
                    followed(spark, source, lake, progress, tries, **given)
                    break
                except QueryEndedError as error:
                    said = f"{in_words(str(error), source.stream)} (see {log})"
                    if given["once"] or is_final(error, said):
                        raise click.ClickException(said) from None
                    tries.wait(said)
        finally:
            end_session(spark)
    return stopping.is_set()


def in_words(said: str, stream: str) -> str:
    """The error of a query, with the options of this command."""
    from pelton.spark.reading.offsets import TO_GO_ON

    if "is not there any more" in said:
        said = said.replace(
            ", or not asked for", f": pelton stream add {stream} --subjects 'plgd.>'"
        )
    return said.replace(TO_GO_ON, "--allow-data-loss goes on with what is left")


def followed(
    spark: SparkSession,
    source: Source,
    lake: Lake,
    progress: Progress,
    tries: Tries,
    **given: Any,
) -> None:
    """Follow the stream with one query, until that ends or is asked to; QueryEndedError if it fails."""
    from pelton.pipeline.running.supervising import check_query, stop_after_batch
    from pelton.plgd.spark.running import stream as start

    def told(number: int, counts: Counts) -> None:
        tries.done()
        progress.told(number, counts)

    progress.last = time.monotonic()
    names = ("checkpoint", "batch", "every", "once", "begin", "then")
    query = start(spark, source, lake, told=told, **{name: given[name] for name in names})
    try:
        while check_query(query, may_end=given["once"] or tries.stopping.is_set()):
            if tries.stopping.wait(LOOK_SECONDS):
                stop_after_batch([query])
            else:
                given["look"]()
    finally:
        with contextlib.suppress(Exception):  # it has ended, or Spark has
            query.stop()


@click.command()
@FOLDER
@STREAM
@click.option("--first", type=Whole(1), help="The first sequence; else the stream's.")
@click.option("--last", type=Whole(1), help="The last sequence; else the stream's.")
@BATCH
@table_options
@MASTER
@command
@click.pass_obj
def backfill(session: Session, /, folder: Path, stream: str, **given: Any) -> int:
    """Make the tables of events that a stream has.

    FOLDER gets new tables, which are those that `pelton plgd run` would have made. Ctrl-C stops it at the
    end of a batch. One that was interrupted goes on, with the same --first, --last and --batch.

    \b
    pelton --server nats://hub:4222 plgd backfill ./again
    """
    with ExitStack() as cleanup:
        cleanup.enter_context(alone_on(folder))
        lake = lake_of(folder / "tables", given)
        client = cleanup.enter_context(session.connect(lasting=True))
        state = stream_of(session.jetstream(client), stream).state
        from pelton.client.base.addresses import DEFAULT_URL

        source = source_of(session, session.server or DEFAULT_URL, stream)
        progress = Progress(session.jetstream(client), stream, as_json=session.as_json)
        given["first"] = first = given["first"] or state.first_seq
        given["last"] = given["last"] or state.last_seq
        if first > min(given["last"], state.last_seq) and state.messages:
            raise click.UsageError(
                f"nothing from --first {first} to --last {given['last']}: the stream {stream} has"
                f" {state.first_seq} to {state.last_seq}"
            )
        log = folder / "spark.log"
        stopped = run_backfill(lake, log, source, progress.told, **given)
        progress.summary(folder / "tables", stopped=stopped)
    return DONE


def run_backfill(
    lake: Lake,
    log: Path,
    source: Source,
    told: Callable[[int, Counts], None],
    **given: Any,
) -> bool:
    """Bring a range of a stream into new tables; whether it was asked to stop."""
    from pelton.pipeline.running.supervising import brief, stop_signals
    from pelton.plgd.spark.running import backfill as fill
    from pelton.plgd.spark.running import last_filled
    from pelton.spark.session import end_session
    from pelton.spark.tables.places import TableError

    stopping = threading.Event()

    def tell(number: int, counts: Counts) -> None:
        told(number, counts)
        if stopping.is_set():
            raise Stopped

    try:
        last_filled(source, lake, given["first"], given["batch"])  # before Spark starts
    except TableError as error:
        raise click.ClickException(str(error)) from None
    with stop_signals(stopping):
        spark = own_session(log, given["master"])
        try:
            limits = {name: given[name] for name in ("first", "last", "batch")}
            fill(spark, source, lake, told=tell, **limits)
        except Stopped:
            return True
        except TableError as error:
            raise click.ClickException(str(error)) from None
        except Exception as error:  # of Spark, with pages of text
            raise click.ClickException(f"{brief(error)} (see {log})") from error
        finally:
            end_session(spark)
    return False
