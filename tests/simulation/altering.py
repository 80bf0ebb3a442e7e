"""What administrators change while everything goes on: limits, retention, subjects, sources and
permissions of streams, and the filters, limits and positions of consumers.

Half of the seeds have this, drawn apart from the wider choice.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from . import configs

if TYPE_CHECKING:
    from .model import Stream
    from .readers import Readers

SECOND = 1_000_000_000
SEAL = 0.03  # the part of the updates that seal a stream: nothing is published to it any more


class Altering:
    def __init__(self, readers: Readers) -> None:
        self.clients = readers.clients
        self.world = readers.world
        self.readers = readers
        self.random = Random(f"{self.world.seed} altering choices")

    # --- streams ---------------------------------------------------------------------------------

    def update(self) -> None:
        """Change one thing about a stream."""
        stream = self.clients.stream()
        if stream is None or "mirror" in stream.config or stream.unclear:
            return
        config = dict(stream.config)
        if self.random.random() < SEAL:
            config["sealed"] = True
        else:
            self.random.choice(CHANGES)(self, stream, config)
        if config.get("sealed"):
            config |= {"max_age": 0, "discard": "new", "allow_rollup_hdrs": False}
            config |= {"deny_delete": True, "deny_purge": True}
        if config.get("discard_new_per_subject"):
            config["discard"] = "new"
            config["max_msgs_per_subject"] = max(config.get("max_msgs_per_subject", 0), 1)
        self.clients.send_update(stream, config, "stream alterations")

    def limits(self, stream: Stream, config: dict[str, Any]) -> None:
        name, values = self.random.choice(
            [
                ("max_msgs", [10, 50, -1]),
                ("max_bytes", [5000, 20_000, -1]),
                ("max_msgs_per_subject", [1, 3, -1]),
                ("max_age", [3 * SECOND, 10 * SECOND, 0]),
                ("discard", ["old", "new"]),
            ]
        )
        config[name] = self.random.choice(values)
        if config.get("max_age"):
            config["duplicate_window"] = min(config["duplicate_window"], config["max_age"])

    def retention(self, stream: Stream, config: dict[str, Any]) -> None:
        """Change between limits and interest; a work queue stays one."""
        if stream.retention != "workqueue" and "subject_transform" not in config:
            config["retention"] = {"limits": "interest", "interest": "limits"}[stream.retention]

    def subjects(self, stream: Stream, config: dict[str, Any]) -> None:
        all_of_them = [f"{stream.name}.>"]
        some = [f"{stream.name}.{each}" for each in ("a", "b", "d.*")]
        config["subjects"] = self.random.choice([all_of_them, some])

    def features(self, stream: Stream, config: dict[str, Any]) -> None:
        """Allow something, or no more; batches may be open."""
        features = ["allow_direct", "allow_msg_ttl"]
        if not config.keys() & {"allow_msg_schedules", "subject_delete_marker_ttl"}:
            features += ["allow_rollup_hdrs"]
        if config.get("persist_mode") != "async":
            features += ["allow_atomic", "allow_batched"]
        name = self.random.choice(features)
        config[name] = name == "allow_msg_ttl" or not config.get(name)

    def window(self, stream: Stream, config: dict[str, Any]) -> None:
        window_ns = self.random.choice([1, 5, 20]) * SECOND
        config["duplicate_window"] = min(window_ns, config.get("max_age") or window_ns)

    def republish(self, stream: Stream, config: dict[str, Any]) -> None:
        if config.pop("republish", None) is None:
            config["republish"] = {"src": ">", "dest": "again.>"}

    def sources(self, stream: Stream, config: dict[str, Any]) -> None:
        """Copy another stream from now on, or no other one."""
        if "allow_msg_counter" in config or stream.config.get("allow_msg_schedules"):
            return
        if config.pop("sources", None) is not None:
            return
        others = [
            each
            for each in self.clients.streams.values()
            if each.there == "yes"
            and each is not stream
            and not each.origins  # it may have copied this stream's messages
        ]
        if others:
            copied = self.random.choice(others)
            copied.copied = True
            stream.origins.setdefault(copied.name, copied)
            config["sources"] = [{"name": copied.name}]

    # --- consumers -------------------------------------------------------------------------------

    def reset(self) -> None:
        """Let a consumer begin again at a sequence, or behind its ack floor."""
        pair = self.readers.pair()
        if pair is None:
            return
        stream, consumer = pair
        seq = self.random.choice([0, self.random.randint(1, max(stream.ever_last, 1))])
        consumer.reset_from(seq)

        def heard(answer: Any) -> None:
            consumer.resetting -= 1
            # other connections may still have messages that were sent before
            consumer.reset_turn = self.world.turns
            if "error" not in answer:
                self.world.counts["consumer resets"] += 1

        body = {"seq": seq} if seq else {}
        self.clients.link().api(f"CONSUMER.RESET.{stream.name}.{consumer.name}", body, heard)

    def update_consumer(self) -> None:
        """Change what a consumer takes, or how much of it at once."""
        pair = self.readers.pair()
        if pair is None or pair[1].unclear:
            return
        stream, consumer = pair
        config = dict(consumer.config)
        choice = self.random.random()
        if choice < 0.4 and stream.retention != "workqueue":
            subject = f"{stream.name}.{self.random.choice(configs.SUBJECTS)}"
            config["filter_subjects"] = self.random.choice(
                [[subject], [f"{stream.name}.a", f"{stream.name}.d.>"], []]
            )
        elif choice < 0.7:
            config["max_ack_pending"] = self.random.choice([1, 3, 1000])
        elif config["ack_policy"] == "explicit" and "backoff" not in config:
            config["max_deliver"] = self.random.choice([1, 3, -1])
        self.readers.send_update(stream, consumer, config, "consumer alterations")


CHANGES = (
    Altering.limits, Altering.limits, Altering.limits, Altering.retention, Altering.subjects, Altering.features,
    Altering.window, Altering.republish, Altering.sources,
)  # fmt: skip
