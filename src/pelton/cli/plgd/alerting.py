"""The output of ``pelton plgd run`` to the server: the twins that a batch changed, and alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pelton.cli.values import DURATION, Whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pelton.client.sync import Client
    from pelton.plgd.spark.lake import Counts, Lake
    from pelton.plgd.spark.watching import Watch

NAMES = ("offline_after", "late_after", "flaps", "flap_session", "flap_window")


def alert_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options of twins and alerts."""
    for option in reversed(
        [
            click.option(
                "--twins",
                metavar="BUCKET",
                default=None,
                help="Put changed twins into this key-value bucket, which is made if it is not there.",
            ),
            click.option(
                "--alerts",
                metavar="STREAM",
                default=None,
                help="Send alerts to this stream, which is made if it is not there.",
            ),
            click.option(
                "--offline-after",
                type=DURATION,
                default="1h",
                show_default=True,
                help="Alert when a device has been offline for this long; 0s: never.",
            ),
            click.option(
                "--late-after",
                type=DURATION,
                default="30s",
                show_default=True,
                help="Alert when a command takes this long, or expires; 0s: never.",
            ),
            click.option(
                "--flaps",
                type=Whole(0),
                default=5,
                show_default=True,
                help="Alert when a device has so many short sessions; 0: never.",
            ),
            click.option(
                "--flap-session",
                type=DURATION,
                default="1m",
                show_default=True,
                help="A shorter session is short.",
            ),
            click.option(
                "--flap-window",
                type=DURATION,
                default="1h",
                show_default=True,
                help="The time in which short sessions are counted.",
            ),
        ]
    ):
        function = option(function)
    return function


def taken(given: dict[str, Any]) -> dict[str, Any]:
    """Take the options of alerts out of those of a command: the arguments of `Bounds`."""
    values = {name: given.pop(name) for name in NAMES}
    bounds = {
        "offline_s": values["offline_after"] / 1e9,
        "late_s": values["late_after"] / 1e9,
        "flaps": values["flaps"],
        "short_s": values["flap_session"] / 1e9,
        "window_s": values["flap_window"] / 1e9,
    }
    if bounds["flaps"] == 1:
        raise click.UsageError("--flaps 1: one short session is not flapping; give 2 or more")
    if not bounds["short_s"] or not bounds["window_s"]:
        raise click.UsageError("--flap-session and --flap-window are longer than 0s")
    return bounds


def is_whole(checkpoint: Path) -> bool:
    """Whether a query has finished every batch that it began."""
    begun, done = (
        {int(one.name) for one in (checkpoint / name).glob("*") if one.name.isdecimal()}
        for name in ("offsets", "commits")
    )
    return max(begun, default=-1) <= max(done, default=-1)


def watch_of(
    client: Client, lake: Lake, folder: Path, alerts: str | None, **given: Any
) -> Watch | None:
    """The watcher of devices and commands, with a stream of alerts, which is created if needed; None without."""
    if alerts is None:
        return None
    from pelton.plgd.spark.watching import Watch
    from pelton.plgd.tables.conditions import Bounds

    born_alerts(client, alerts)
    stream, bounds = given["stream"], Bounds(**given["bounds"])
    whole = is_whole(folder / "checkpoint")
    return Watch(client, lake, bounds, alerts=alerts, stream=stream, is_whole=whole)


def born_alerts(client: Client, alerts: str) -> int:
    """When the stream of alerts was made, which is now if it was not there; NotTakenError if it takes no alerts."""
    from pelton.client.base.models import StreamConfig
    from pelton.errors import StreamNotFoundError
    from pelton.plgd.spark.alerts import SUBJECT, NotTakenError

    js = client.jetstream()
    try:
        info = js.stream_info(alerts)
    except StreamNotFoundError:
        info = js.create_stream(StreamConfig(name=alerts, subjects=[f"{SUBJECT}.>"]))
    if alerts not in js.stream_names(f"{SUBJECT}.>"):
        raise NotTakenError(alerts)
    return int(info.created)


def born_bucket(client: Client, bucket: str) -> tuple[int, bool]:
    """When a bucket was made, which is now if it was not there, and whether that is so."""
    from pelton.client.keyvalue.config import KeyValueConfig
    from pelton.errors import BucketNotFoundError, StreamNotFoundError

    js = client.jetstream()
    is_new = False
    try:
        js.key_value(bucket)
    except (BucketNotFoundError, StreamNotFoundError):
        js.create_key_value(KeyValueConfig(bucket=bucket))
        is_new = True
    return int(js.stream_info(f"KV_{bucket}").created), is_new


class Twins:
    """Puts changed twins into a bucket; all twins if the bucket was created before the run or during it."""

    def __init__(self, client: Client, lake: Lake, bucket: str) -> None:
        """Makes the bucket if it is not there, and fills it."""
        self.client, self.lake, self.bucket = client, lake, bucket
        self.born, is_new = born_bucket(client, bucket)
        if is_new:
            self.put(0)

    def put(self, first_seq: int) -> None:
        """Put those that messages from a sequence on have set."""
        from pelton.plgd.spark.live import put_twins

        put_twins(self.client, self.lake, first_seq, self.bucket)

    def batch(self, counts: Counts) -> None:
        """Put the twins that a batch changed."""
        born, _ = born_bucket(self.client, self.bucket)
        self.put(counts.first_seq if born == self.born else 0)
        self.born = born


def back_to(
    client: Client, lake: Lake, bucket: str | None, watch: Watch | None
) -> Callable[[Counts], None] | None:
    """The function that puts the twins of a batch into a bucket, and sends its alerts; None for neither."""
    if bucket is None and watch is None:
        return None
    from pelton.plgd.spark.alerts import send_alerts

    twins = None if bucket is None else Twins(client, lake, bucket)
    born = 0 if watch is None else born_alerts(client, watch.alerts)

    def put(counts: Counts) -> None:
        nonlocal born
        if twins is not None and counts.messages:
            twins.batch(counts)
        if watch is not None:
            now = born_alerts(client, watch.alerts)
            if now != born:
                watch.read_sent()
                born = now
            if counts.messages:
                send_alerts(client, lake, counts.first_seq)
            watch.batch(counts)

    return put


def looks(watch: Watch | None) -> Callable[[], None]:
    """The function that checks the clock between batches. It reports a failure once, and tries again next time."""
    from pelton.errors import PeltonError
    from pelton.spark.tables.places import TableError

    told = ""

    def look() -> None:
        nonlocal told
        if watch is None:
            return
        try:
            watch.look()
            told = ""
        except (PeltonError, TableError, OSError) as error:
            if str(error) != told:
                told = str(error)
                click.echo(f"alerts wait: {told}", err=True)

    return look
