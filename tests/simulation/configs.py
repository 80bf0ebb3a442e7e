"""Random configurations of streams and consumers for the simulated world, of all kinds.

Limits are small, so that they apply within a run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from random import Random

SECOND = 1_000_000_000
SUBJECTS = ("a", "b", "c", "d.e", "d.f")


def stream(random: Random, name: str, others: list[str], *, copy: bool = False) -> dict[str, Any]:
    """Return the configuration of a stream; it may copy one of the others, and does with `copy`."""
    config: dict[str, Any] = {
        "name": name,
        "subjects": [f"{name}.>"],
        "duplicate_window": 20 * SECOND,
    }
    kind = random.choice((_mirror, _source) if copy else KINDS)
    kind(config, random, name, others)
    if random.random() < 0.3:
        config["compression"] = "s2"
    if random.random() < 0.15 and "mirror" not in config:
        config["persist_mode"] = "async"
        config.pop("allow_atomic", None)
        config.pop("allow_batched", None)
    if "mirror" in config:
        del config["subjects"]
        del config["duplicate_window"]
    config["metadata"] = {"kind": kind.__name__.strip("_")}
    return config


def _plain(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["allow_direct"] = random.random() < 0.5


def _weeds(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    """Clients remove many messages (`Clients.weed`), and nothing else does."""
    config["allow_direct"] = random.random() < 0.5


def _count(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["max_msgs"] = random.choice([1, 5, 30])


def _size(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["max_bytes"] = random.choice([5000, 20_000])


def _age(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["max_age"] = random.choice([2, 10]) * SECOND
    config["duplicate_window"] = config["max_age"]
    if random.random() < 0.5:
        config |= {"allow_msg_ttl": True, "subject_delete_marker_ttl": 5 * SECOND}
        config["allow_rollup_hdrs"] = True


def _per_subject(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["max_msgs_per_subject"] = random.choice([1, 3])


def _full(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config |= {"discard": "new", "max_msgs": random.choice([10, 40])}
    if random.random() < 0.4:
        config |= {"max_msgs_per_subject": 5, "discard_new_per_subject": True}


def _interest(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["retention"] = "interest"


def _work(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["retention"] = "workqueue"


def _ttl(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["allow_msg_ttl"] = True


def _rollup(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["allow_rollup_hdrs"] = True


def _counter(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["allow_msg_counter"] = True


def _plans(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config |= {"allow_msg_schedules": True, "allow_msg_ttl": True, "allow_rollup_hdrs": True}


def _batches(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["allow_atomic"] = True
    if random.random() < 0.3:
        config["max_msgs"] = 20


def _fast(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["allow_batched"] = True


def _mirror(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    if others:
        config["mirror"] = {"name": random.choice(others)}


def _source(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    if others:
        config["sources"] = [{"name": each} for each in others[: random.randint(1, 2)]]


def _republish(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["republish"] = {"src": ">", "dest": "again.>"}


def _transform(config: dict[str, Any], random: Random, name: str, others: list[str]) -> None:
    config["subject_transform"] = {"src": f"{name}.>", "dest": f"{name}.to.>"}


KINDS = (
    _plain, _plain, _weeds, _count, _size, _age, _per_subject, _full, _interest, _interest, _work, _work, _ttl,
    _rollup, _counter, _plans, _batches, _batches, _fast, _mirror, _source, _republish, _transform,
)  # fmt: skip


def wider(random: Random, config: dict[str, Any]) -> None:
    """Give a consumer small limits, waits between deliveries, or a priority group."""
    explicit = config["ack_policy"] == "explicit"
    if explicit and random.random() < 0.3:
        config["max_ack_pending"] = random.choice([1, 3])
    if explicit and "max_deliver" not in config and random.random() < 0.2:
        config |= {"backoff": [SECOND, 3 * SECOND], "max_deliver": 4}
        del config["ack_wait"]
    if explicit and "deliver_subject" not in config and random.random() < 0.3:
        config["priority_groups"] = ["g"]
        config["priority_policy"] = random.choice(["overflow", "pinned_client", "prioritized"])
        if config["priority_policy"] == "pinned_client":
            config["priority_timeout"] = 2 * SECOND


def consumer(random: Random, name: str, stream: dict[str, Any], taken: int) -> dict[str, Any]:
    """Return the configuration of a consumer; `taken`: how many consumers the stream has."""
    config: dict[str, Any] = {
        "durable_name": name,
        "ack_policy": random.choice(["explicit", "explicit", "explicit", "all", "none"]),
        "ack_wait": random.choice([1, 4]) * SECOND,
        "max_ack_pending": 1000,
    }
    of = stream["name"]
    choice = random.random()
    if choice < 0.3:
        config["filter_subjects"] = [f"{of}.{random.choice(SUBJECTS)}"]
    elif choice < 0.45:
        config["filter_subjects"] = [f"{of}.a", f"{of}.d.>"]
    if stream.get("retention") == "workqueue":
        config["ack_policy"] = "explicit"
        config["filter_subjects"] = [[f"{of}.a", f"{of}.b"], [f"{of}.c"], [f"{of}.d.*"]][taken % 3]
    elif random.random() < 0.2:
        config["deliver_policy"] = random.choice(["new", "last_per_subject"])
        if config["deliver_policy"] == "last_per_subject":
            config["filter_subjects"] = [f"{of}.>"]
    if random.random() < 0.2 and config["ack_policy"] == "explicit":
        config["max_deliver"] = random.choice([1, 3])
    if random.random() < 0.3:
        config["deliver_subject"] = f"push.{of}.{name}"
        if random.random() < 0.4:
            config["deliver_group"] = "g"
    if random.random() < 0.15:
        del config["durable_name"]
        config |= {"name": name, "inactive_threshold": 30 * SECOND}
    return config
