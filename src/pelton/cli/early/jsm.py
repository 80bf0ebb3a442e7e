"""`jsm`, the tool of the preview of December 2019 for message sets and observables.

The prompts and the lines that it prints are those of that time. Answers may also come through a
pipe, one on each line. Unlike its model it takes `y` and `yes` as yes, `rm-msg` as its help says,
and `a,b` as two subjects.
"""

from __future__ import annotations

import json
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from pelton.api.times import (
    DurationTooLongError,
    format_time,
    parse_duration,
    parse_long_duration,
)
from pelton.cli.early.asking import Failed, ask, connect, pull
from pelton.cli.failures import failure_of
from pelton.cli.values import nearest
from pelton.core.base.quoting import quoted_letter
from pelton.errors import PeltonError, PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pelton.client.sync import Client

USAGE = """
Usage:
  jsm [-s server] [-creds file] [command]

Available Commands:
  info                   # General account info

  ls                     # List all message sets
  add                    # Add a new message set
  rm     [mset]          # Delete a message set
  purge  [mset]          # Purge a message set
  rm-msg [mset] [seq]    # Securely delete a message from a message set
  info   [mset]          # Get information about a message set

  add-obs                # Add an observable to a message set
  ls-obs   [mset]        # List all observables for the message set
  rm-obs   [mset] [obs]  # Delete an observable to a message set
  info-obs [mset] [obs]  # Get information about an observable

  next     [mset] [obs]  # Get the next message of an observable
"""
# command -> its other names
_NAMES = {
    "info": (),
    "ls": ("list",),
    "add": ("create",),
    "rm": ("del", "delete"),
    "purge": (),
    "rm-msg": ("rmmsg", "del-msg", "delmsg"),
    "add-obs": ("create-obs",),
    "ls-obs": ("list-obs",),
    "rm-obs": ("del-obs", "delete-obs"),
    "info-obs": ("inf-obs",),
    "next": ("next-msg",),
}
# command -> the numbers of arguments it takes
_COUNTS = {
    "info": (0, 1, 2),
    **dict.fromkeys(("ls", "add", "add-obs"), (0,)),
    **dict.fromkeys(("rm", "purge", "ls-obs"), (1,)),
    **dict.fromkeys(("rm-msg", "rm-obs", "info-obs", "next"), (2,)),
}
_OPTIONS = {
    "s": "servers",
    "creds": "creds",
    "tlscert": "cert",
    "tlskey": "key",
    "tlscacert": "ca",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `jsm`; the exit status: 0 done, 1 not done, 2 wrong usage, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options, words = parse(given)
        if not words or "help" in options:
            print(USAGE)
            return 0
        command = _command(words)
        with connect(**options) as client:
            return _run(client, command, words[1:])
    except _UsageError as mistake:
        print(f"jsm: {mistake}; jsm -h shows the commands", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except PeltonTimeoutError:
        print("jsm: timeout: no answer", file=sys.stderr)
    except (PeltonError, OSError, ValueError) as problem:
        print(f"jsm: {failure_of(problem).message}", file=sys.stderr)
    return 1


class _UsageError(Exception):
    """The command line is wrong."""


def parse(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The options, which may stand anywhere, as `connect` takes them, and the other words."""
    options = {"servers": ""}
    words: list[str] = []
    rest = iter(arguments)
    for each in rest:
        name, equals, value = each.lstrip("-").partition("=")
        if each == "--":
            words += rest
        elif not each.startswith("-"):
            words.append(each)
        elif name in ("h", "help"):
            options["help"] = "1"
        elif name in _OPTIONS:
            found = value if equals else next(rest, None)
            if found is None:
                raise _UsageError(f"{each} needs a value")
            options[_OPTIONS[name]] = found
        else:
            raise _UsageError(f"no such option: {each}{nearest(name, _OPTIONS)}")
    return options, words


def _command(words: list[str]) -> str:
    said = words[0].lower()
    for name, others in _NAMES.items():
        if said == name or said in others:
            if len(words) - 1 not in _COUNTS[name]:
                raise _UsageError(f"wrong number of arguments for {name}")
            return name
    known = [*_NAMES, *(other for others in _NAMES.values() for other in others)]
    raise _UsageError(f"no such command: {words[0]}{nearest(said, known)}")


def _run(client: Client, command: str, words: list[str]) -> int:
    text = " ".join(words).encode("utf-8", "surrogateescape")
    if command == "info":
        if len(words) == 2:
            return _say_json(ask(client, "$JS.OBSERVABLE.INFO", text))
        return _message_set(client, text) if words else _account(client)
    if command == "ls":
        return _list(ask(client, "$JS.MSGSETS"))
    if command == "ls-obs":
        return _list(ask(client, "$JS.OBSERVABLES", text))
    if command == "add":
        return _say(ask(client, "$JS.MSGSET.CREATE", _asked_message_set()))
    if command == "add-obs":
        return _say(ask(client, "$JS.OBSERVABLE.CREATE", _asked_observable(client)))
    if command == "info-obs":
        return _say_json(ask(client, "$JS.OBSERVABLE.INFO", text))
    if command == "next":
        return _next(client, words[0], words[1])
    subject = {
        "rm": "$JS.MSGSET.DELETE",
        "purge": "$JS.MSGSET.PURGE",
        "rm-msg": "$JS.MSGSET.MSG.DELETE",
        "rm-obs": "$JS.OBSERVABLE.DELETE",
    }[command]
    return _say(ask(client, subject, text))


# -- printing --------------------------------------------------------------------------------------


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _say(answer: bytes) -> int:
    quoted = "".join(quoted_letter(each) for each in _text(answer))
    print(f'Received response of "{quoted}"')
    return 1 if answer.startswith(b"-ERR") else 0


def _say_json(answer: bytes) -> int:
    print(f"Received response of {_text(answer)}")
    return 1 if answer.startswith(b"-ERR") else 0


def _fields(answer: bytes) -> Any:
    if answer.startswith(b"-ERR"):
        raise Failed(_text(answer))
    return json.loads(answer)


def _list(answer: bytes) -> int:
    names = _fields(answer) or []
    print()
    print("\n".join(f"{at}) {name}" for at, name in enumerate(names, 1)) or "None")
    print()
    return 0


def _account(client: Client) -> int:
    found = _fields(ask(client, "$JS.INFO"))
    limits = found["limits"]
    most = limits["max_streams"]
    print()
    print(f"Memory:  {size(found['memory'])} of {_bound(limits['max_memory'])}")
    print(f"Storage: {size(found['storage'])} of {_bound(limits['max_storage'])}")
    print(f"MsgSets: {found['streams']:,} of {'Unlimited' if most < 0 else f'{most:,}'}")
    print()
    return 0


def _bound(limit: int) -> str:
    return "Unlimited" if limit < 0 else size(limit)


def _message_set(client: Client, name: bytes) -> int:
    found = _fields(ask(client, "$JS.MSGSET.INFO", name))
    print()
    print(f"Messages: {found['Msgs']:,}")
    print(f"Bytes:    {size(found['Bytes'])}")
    print(f"FirstSeq: {found['FirstSeq']:,}")
    print(f"LastSeq:  {found['LastSeq']:,}")
    print()
    return 0


def size(count: int) -> str:
    """Bytes in powers of 1000: `76 B`, `1.1 TB`, `161 MB`."""
    if count < 1000:
        return f"{count} B"
    units = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
    power = 0
    scaled = float(count)
    while scaled >= 1000 and power < len(units) - 1:
        scaled /= 1000
        power += 1
    tenths = int(scaled * 10 + 0.5) / 10
    return f"{tenths:.1f} {units[power]}" if tenths < 10 else f"{tenths:.0f} {units[power]}"


# -- prompts ---------------------------------------------------------------------------------------


def _prompt(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        raise Failed(f"no answer to {question.strip()!r}") from None


def _yes(question: str, default: bool) -> bool:
    said = _prompt(question).lower()
    if not said:
        return default
    if said in ("y", "yes", "t", "true", "1"):
        return True
    if said in ("n", "no", "f", "false", "0"):
        return False
    raise Failed(f"must be y or n, got {said!r}")


def subjects_of(text: str) -> list[str]:
    """The subjects of an answer, with commas or blanks between them."""
    return [each for each in re.split(r"[,\s]+", text) if each]


def limits_of(text: str) -> tuple[int, int, int]:
    """Messages, bytes, age in ns of an answer such as `-1 -1 1m`. Failed: it is none."""
    words = [each for each in re.split(r"[,\s]+", text) if each]
    if len(words) > 3:
        raise Failed(f"invalid limits {text!r}: more than three")
    try:
        numbers = [int(each) for each in words[:2]]
    except ValueError:
        raise Failed(f'invalid limits {text!r}; expected for example "-1 -1 1m"') from None
    age_ns = age_of(words[2]) if len(words) > 2 else 0
    msgs, most, *_ = *numbers, -1, -1
    return msgs, most, age_ns


def age_of(text: str) -> int:
    """Nanoseconds of an age: `90s`, `1m` (a minute), `1M` (30 days), `2d`, `1y`; `-1` is none."""
    if text in ("-1", "0"):
        return 0
    try:
        return max(parse_long_duration(text), 0)
    except DurationTooLongError as problem:
        raise Failed(str(problem)) from None
    except ValueError:
        raise Failed(
            f'invalid age {text!r}; expected for example "90s", "1m", "2d", "1M"'
        ) from None


def _asked_message_set() -> bytes:
    print("Enter the following information")
    name = _prompt("Name: ")
    subjects = subjects_of(_prompt("Subjects: "))
    msgs, most, age_ns = limits_of(_prompt("Limits (msgs, bytes, age): "))
    storage = _prompt("Storage: ")
    return _json(
        {
            "name": name,
            "subjects": subjects,
            "max_msgs": msgs,
            "max_bytes": most,
            "max_age": age_ns,
            "storage": "memory" if storage[:1].lower() == "m" else "file",
        }
    )


def _asked_observable(client: Client) -> bytes:
    print("Enter the following information")
    message_set = _prompt("Message Set Name: ")
    if not message_set or ask(client, "$JS.MSGSET.INFO", message_set.encode()).startswith(b"-ERR"):
        raise Failed("Not a valid message set")
    config: dict[str, Any] = {"durable_name": _prompt("Durable Name: ")}
    push = _prompt("Push or Pull: ").lower().startswith("pus")
    if push:
        config["delivery_subject"] = _prompt("Delivery Subject: ")
    if _yes("Deliver All? (Y|n): ", True):
        config["deliver_all"] = True
    elif _yes("Deliver Last? (y|n): ", False):
        config["deliver_last"] = True
    elif span := _prompt("Start at Time Delta: "):
        try:
            config["start_time"] = format_time(time.time_ns() - parse_duration(span))
        except ValueError as error:
            raise Failed(str(error)) from None
    elif seq := _prompt("Start at Message Set Sequence: "):
        if not (seq.isascii() and seq.isdigit() and len(seq) <= 20):
            raise Failed(f"invalid sequence {seq!r}")
        config["msg_set_seq"] = int(seq)
    config["ack_policy"] = "explicit"
    if push:
        config["ack_policy"] = _word("AckPolicy (None|all|explicit): ", ("none", "all", "explicit"))
    config["replay_policy"] = _word("Replay Policy (Instant|original): ", ("instant", "original"))
    return _json({"msg_set_name": message_set, "config": config})


def _word(question: str, words: tuple[str, ...]) -> str:
    said = _prompt(question).lower()
    for each in words:
        if each.startswith(said):
            return each  # a blank answer is the first
    raise Failed(f"must be one of {', '.join(words)}, got {said!r}{nearest(said, words)}")


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _next(client: Client, message_set: str, observable: str) -> int:
    message = pull(client, message_set, observable)
    print(f"Received response of {_text(message.data)}")
    print(f"Reply: {message.reply}")
    if _yes("Ack? (Y|n) ", True):
        client.publish(message.reply, b"+OK")
        client.flush()
    return 0
