"""`nats-pub`, `nats-sub`, `nats-req` and `nats-bench`, the examples of the Go client as of 2019."""

from __future__ import annotations

import math
import sys
import threading
import time
from typing import TYPE_CHECKING

from pelton.cli.early.asking import Failed, connect, receive
from pelton.cli.failures import failure_of
from pelton.cli.values import nearest
from pelton.core.base.quoting import shown
from pelton.errors import NoRespondersError, PeltonError, PeltonTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CONNECTION = {"s": "servers", "creds": "creds"}
# tool -> its own options with values, its switches, its usage
_TOOLS: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "nats-pub": (
        ("reply",),
        (),
        "nats-pub [-s server] [-creds file] [-reply subject] <subject> <msg>",
    ),
    "nats-sub": ((), ("t",), "nats-sub [-s server] [-creds file] [-t] <subject>"),
    "nats-req": ((), (), "nats-req [-s server] [-creds file] <subject> <request>"),
    "nats-bench": (
        ("np", "ns", "n", "ms", "csv"),
        (),
        "nats-bench [-s server] [-np publishers] [-ns subscribers] [-n messages] [-ms size] <subject>",
    ),
}
_REQUEST_SECONDS = 2.0


def run(tool: str, arguments: Sequence[str]) -> int:
    """Run a tool; the exit status: 0 done, 1 not done, 2 wrong usage, 130 interrupted."""
    runs: dict[str, Callable[[dict[str, str], list[str]], int]] = {
        "nats-pub": _pub,
        "nats-sub": _sub,
        "nats-req": _req,
        "nats-bench": _bench,
    }
    try:
        options, words = _parse(tool, arguments)
        counts = {"nats-pub": (1, 2), "nats-req": (1, 2)}.get(tool, (1,))
        if "h" in options or len(words) not in counts:
            print(f"Usage: {_TOOLS[tool][2]}", file=sys.stderr)
            return 0 if "h" in options else 2
        return runs[tool](options, words)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 0
    except (PeltonError, OSError, ValueError) as problem:
        print(shown(f"{tool}: {failure_of(problem).message}"), file=sys.stderr)
        return 1


def _parse(tool: str, arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    valued, switches, _ = _TOOLS[tool]
    options: dict[str, str] = {}
    words: list[str] = []
    rest = iter(arguments)
    for each in rest:
        name, equals, value = each.lstrip("-").partition("=")
        if words or not each.startswith("-"):
            words.append(each)
        elif name in switches or name in ("h", "help"):
            options[name[:1]] = "1"
        elif name in valued or name in _CONNECTION:
            found = value if equals else next(rest, None)
            if found is None:
                raise Failed(f"{each} needs a value")
            options[name] = found
        else:
            known = (*valued, *switches, *_CONNECTION)
            raise Failed(f"no such option: {each}{nearest(name, known)}")
    return options, words


def _body(words: list[str]) -> bytes:
    return words[1].encode("utf-8", "surrogateescape") if len(words) > 1 else b""


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _connection(options: dict[str, str]) -> dict[str, str]:
    return {where: options.get(name, "") for name, where in _CONNECTION.items()}


def _pub(options: dict[str, str], words: list[str]) -> int:
    with connect(**_connection(options)) as client:
        client.publish(words[0], _body(words), reply=options.get("reply", ""))
        client.flush()
        if client.last_error is not None:
            raise client.last_error
    print(f"Published [{shown(words[0])}] : '{_text(_body(words))}'")
    return 0


def _req(options: dict[str, str], words: list[str]) -> int:
    with connect(**_connection(options)) as client:
        try:
            answer = receive(client, words[0], _body(words), _REQUEST_SECONDS)
        except (PeltonTimeoutError, NoRespondersError):
            print(shown(str(client.last_error or "nats: timeout for request")), file=sys.stderr)
            return 1
    print(f"Published [{shown(words[0])}] : '{_text(_body(words))}'")
    print(f"Received  [{shown(answer.subject)}] : '{_text(answer.data)}'")
    return 0


def _sub(options: dict[str, str], words: list[str]) -> int:
    with connect(**_connection(options)) as client:
        subscription = client.subscribe(words[0])
        client.flush()
        if client.last_error is not None:
            raise client.last_error
        print(f"Listening on [{shown(words[0])}]", flush=True)
        for number, message in enumerate(subscription, 1):
            mark = time.strftime("%Y/%m/%d %H:%M:%S ") if "t" in options else ""
            line = f"[#{number}] Received on [{shown(message.subject)}]"
            print(f"{mark}{line}: '{_text(message.data)}'", flush=True)
    return 0


# -- nats-bench ------------------------------------------------------------------------------------


def _count(options: dict[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not (text.isascii() and text.isdigit()):
        raise Failed(f"-{name} {text}: expected a number")
    return int(text)


def shares(total: int, parts: int) -> list[int]:
    """The messages of each publisher: as equal as can be, in sum `total`."""
    return [total // parts + (at < total % parts) for at in range(parts)]


def _bench(options: dict[str, str], words: list[str]) -> int:
    publishers, subscribers = _count(options, "np", 1), _count(options, "ns", 0)
    total, size = _count(options, "n", 100_000), _count(options, "ms", 128)
    if not total or not publishers + subscribers:
        raise Failed("nothing to do: -n, and -np or -ns, are to be above 0")
    print(
        f"Starting benchmark [msgs={total}, msgsize={size}, pubs={publishers}, subs={subscribers}]",
        flush=True,
    )
    failures: list[BaseException] = []
    published: list[tuple[int, float]] = []
    received: list[tuple[int, float]] = []
    ready = threading.Barrier(publishers + subscribers)

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def go() -> None:
            try:
                work()
            except BaseException as problem:  # told by the main thread
                failures.append(problem)
                ready.abort()

        return go

    def publisher(share: int) -> Callable[[], None]:
        def work() -> None:
            with connect(**_connection(options)) as client:
                ready.wait()
                start = time.perf_counter()
                payload = b"x" * size
                for _ in range(share):
                    client.publish(words[0], payload)
                client.flush()
                published.append((share, time.perf_counter() - start))

        return work

    def subscriber() -> None:
        with connect(**_connection(options)) as client:
            subscription = client.subscribe(words[0])
            client.flush()
            ready.wait()
            start = time.perf_counter()
            for _ in range(total):
                if subscription.next(60.0) is None:
                    raise PeltonTimeoutError("no message in 60 s")
            received.append((total, time.perf_counter() - start))

    works = [guarded(publisher(share)) for share in shares(total, publishers)] if publishers else []
    works += [guarded(subscriber) for _ in range(subscribers)]
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken = [each for each in failures if not isinstance(each, threading.BrokenBarrierError)]
    if broken:
        raise broken[0]
    _tell("Pub", published, size)
    _tell("Sub", received, size)
    return 0


def _tell(kind: str, runs: list[tuple[int, float]], size: int) -> None:
    if not runs:
        return
    rates = [count / max(seconds, 1e-9) for count, seconds in runs]
    whole = sum(count for count, _ in runs) / max(*(seconds for _, seconds in runs), 1e-9)
    print(f"\n {kind} stats: {rate(whole, size)}")
    if len(runs) == 1:
        return
    for at, (count, _) in enumerate(runs):
        print(f"  [{at + 1}] {rate(rates[at], size)} ({count} msgs)")
    mean = sum(rates) / len(rates)
    deviation = math.sqrt(sum((each - mean) ** 2 for each in rates) / len(rates))
    figures = (min(rates), mean, max(rates), deviation)
    low, average, high, spread = (f"{int(each):,}" for each in figures)
    print(f"  min {low} | avg {average} | max {high} | stddev {spread} msgs")


def rate(per_second: float, size: int) -> str:
    """`577,271 msgs/sec ~ 70.47 MB/sec`."""
    return f"{int(per_second):,} msgs/sec ~ {per_second * size / 2**20:.2f} MB/sec"
