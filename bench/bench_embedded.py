#!/usr/bin/env python3
"""How long a broker in the process takes to start, to answer over memory, and to go back to a snapshot.

    python bench/bench_embedded.py
    python bench/bench_embedded.py --runs 500

The first start in the process is printed alone, because it imports the server. Of the others the
median and the 99th percentile are printed, in milliseconds.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from pelton import StreamConfig, testing


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def show(what: str, times: list[float]) -> None:
    worst = statistics.quantiles(times, n=100)[98]
    print(f"{what:44} median {statistics.median(times):7.2f} ms   p99 {worst:7.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    first = testing.broker(clock="manual")
    print(f"{'first start, with imports':44} {timed(first.start):14.2f} ms")
    first.stop()

    starts, answers, stops = [], [], []
    for _ in range(runs):
        broker = testing.broker(clock="manual")
        starts.append(timed(broker.start))

        def ask(broker: testing.Broker = broker) -> None:
            with broker.connect_sync() as client:
                client.jetstream().account_info()

        answers.append(timed(ask))
        stops.append(timed(broker.stop))
    show("start", starts)
    show("connect, one API call, close", answers)
    show("stop", stops)

    with testing.broker(clock="manual") as broker, broker.connect_sync() as client:
        js = client.jetstream()
        for number in range(5):
            js.create_stream(StreamConfig(name=f"S{number}"))
            for _ in range(100):
                js.publish(f"S{number}", b"x" * 128)
        show("publish with PubAck", [timed(lambda: js.publish("S0", b"x")) for _ in range(runs)])
        state = broker.snapshot()
        show(
            "rollback: 5 streams, 100 messages each",
            [timed(lambda: broker.rollback(state)) for _ in range(runs)],
        )
        show("clock.advance(1)", [timed(lambda: broker.clock.advance(1)) for _ in range(runs)])


if __name__ == "__main__":
    main()
