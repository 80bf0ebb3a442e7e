"""Accounts at run time: who is in one, what they share as settings change, and what is waited for."""

import json
import time

import pytest

from pelton.server.accounts.active_imports import AT_ONCE, ActiveImports
from pelton.server.accounts.registry import ServerAccount
from pelton.server.settings.accounts import (
    STREAMED,
    AccountLimits,
    AccountSettings,
    Export,
    Import,
    Latency,
    Mapping,
    MappingTarget,
)
from tests.core.wires import Client
from tests.server.accounts_house import House, messages, statuses


def pair(export: Export, **fields: object) -> list[AccountSettings]:
    """A serves, B asks."""
    wanted = Import("A", export.subject, service=export.service, **fields)
    return [AccountSettings("A", exports=[export]), AccountSettings("B", imports=[wanted])]


def asked(house: House, times: int = 1) -> tuple[Client, Client, list[str]]:
    """A request of B that A has got; both clients and the reply subjects that A sees."""
    server, asker = house.of("A"), house.of("B")
    server.send("SUB q 1\r\n")
    asker.send("SUB in.* 1\r\n")
    for number in range(times):
        asker.send(f"PUB q in.{number} 1\r\nx\r\n")
    return server, asker, [reply for _, _, reply, _ in messages(server)]


def pending(house: House) -> int:
    return house.accounts.pending_responses(house.accounts.by_name["A"])


# -- who is in one


def test_the_default_and_the_system_account_are_always_there() -> None:
    house = House([])
    assert [account.name for account in house.accounts.all()] == ["$G", "$SYS"]
    assert house.accounts.only_default
    assert house.accounts.get("") is house.accounts.default
    assert House([], system="HQ").accounts.system.name == "HQ"
    assert House([], no_system=True).accounts.system is None


def test_connections_are_counted() -> None:
    house = House([AccountSettings("A", limits=AccountLimits(max_connections=2))])
    account = house.accounts.by_name["A"]
    first, second, third = house.of("A"), house.of("A"), house.of("A")
    assert len(account.connections) == account.total_connections == 2
    assert b"maximum account active connections exceeded" in third.raw()
    assert house.accounts.of(first.connection) is account
    assert house.accounts.of(third.connection) is house.accounts.default
    house.accounts.leave(second.connection)
    house.of("A")
    assert len(account.connections) == 2
    assert account.total_connections == 3


def test_a_connection_that_changes_its_account_is_counted_once() -> None:
    house = House([AccountSettings("A"), AccountSettings("B")])
    a, b = house.accounts.by_name["A"], house.accounts.by_name["B"]
    connection = house.of("A").connection
    assert house.accounts.join(connection, b)
    assert (len(a.connections), len(b.connections)) == (0, 1)
    assert house.accounts.join(connection, b)
    assert len(b.connections) == 1


def test_leaf_nodes_have_a_limit_of_their_own() -> None:
    limits = AccountLimits(max_connections=0, max_leafnodes=1)
    house = House([AccountSettings("A", limits=limits)])
    account = house.accounts.by_name["A"]
    first, second = house.client().connection, house.client().connection
    assert house.accounts.join(first, account, leaf=True)
    assert not house.accounts.join(second, account, leaf=True)
    assert not house.accounts.join(second, account)
    assert account.surplus() == []
    house.accounts.leave(first)
    assert not account.leafnodes


def test_above_lowered_limits_the_newest_of_each_kind_are_too_many() -> None:
    house = House([AccountSettings("A")])
    account = house.accounts.by_name["A"]
    made = [house.client().connection for _ in range(6)]
    for connection in made:
        assert house.accounts.join(connection, account, leaf=connection in made[3:])
    for clients, leafs, gone in [(-1, -1, []), (2, -1, [2]), (3, 1, [4, 5]), (0, 2, [0, 1, 2, 5])]:
        account.settings.limits = AccountLimits(max_connections=clients, max_leafnodes=leafs)
        assert account.surplus() == [made[i] for i in gone]
    made[0].fail(b"expelled", "Client Closed")
    account.settings.limits = AccountLimits(max_connections=2)
    assert account.surplus() == []


# -- what is waited for


def test_a_request_is_forgotten_with_its_answer() -> None:
    house = House(pair(Export("q", service=True)))
    server, asker, replies = asked(house)
    assert pending(house) == 1
    server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    assert [body for *_, body in messages(asker)] == [b"y"]
    assert pending(house) == 0


def test_a_request_is_forgotten_after_the_threshold() -> None:
    house = House(pair(Export("q", service=True, threshold_ns=2_000_000_000)))
    server, asker, replies = asked(house)
    house.pass_time(1.9)
    assert pending(house) == 1
    house.pass_time(0.2)
    assert pending(house) == 0
    server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    assert messages(asker) == []


def test_every_answer_of_a_stream_counts_anew() -> None:
    export = Export("q", service=True, response=STREAMED, threshold_ns=2_000_000_000)
    house = House(pair(export))
    server, asker, replies = asked(house)
    for _ in range(4):
        house.pass_time(1.5)
        server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    assert len(messages(asker)) == 4
    house.pass_time(2.1)
    assert pending(house) == 0


def test_several_thresholds_pass_in_their_order() -> None:
    accounts = [
        AccountSettings(
            "A",
            exports=[
                Export("slow", service=True, threshold_ns=5_000_000_000),
                Export("fast", service=True, threshold_ns=1_000_000_000),
            ],
        ),
        AccountSettings(
            "B", imports=[Import("A", "slow", service=True), Import("A", "fast", service=True)]
        ),
    ]
    house = House(accounts)
    server, asker = house.of("A"), house.of("B")
    server.send("SUB * 1\r\n")
    asker.send("SUB in 1\r\nPUB slow in 0\r\n\r\nPUB fast in 0\r\n\r\n")
    assert pending(house) == 2
    house.pass_time(1.5)
    assert pending(house) == 1
    house.pass_time(4)
    assert pending(house) == 0


@pytest.mark.parametrize("end", ["UNSUB 1\r\n", "hang up"])
def test_a_request_is_forgotten_with_the_interest_in_its_answer(end: str) -> None:
    house = House(pair(Export("q", service=True)))
    _, asker, _ = asked(house, times=3)
    assert pending(house) == 3
    if end == "hang up":
        house.sessions.eof(asker.connection)
    else:
        asker.send(end)
    assert pending(house) == 0


def test_others_who_listen_keep_a_request() -> None:
    house = House(pair(Export("q", service=True)))
    server, asker, replies = asked(house)
    asker.send("SUB in.0 2\r\nUNSUB 1\r\n")
    assert pending(house) == 1
    server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    assert [sid for _, sid, *_ in messages(asker)] == [2]


def test_nobody_answers_a_request_that_nobody_got() -> None:
    house = House(pair(Export("q", service=True)))
    asker = house.of("B")
    asker.send("SUB in.* 1\r\nPUB q in.1 1\r\nx\r\n")
    assert statuses(asker) == [b"NATS/1.0 503"]
    assert pending(house) == 0


def test_too_many_requests_push_out_the_oldest() -> None:
    house = House(pair(Export("q", service=True)))
    links = house.accounts._links
    assert links is not None
    links._linked["A"].services["q"].most = 3
    server, asker, replies = asked(house, times=5)
    assert pending(house) == 3
    for reply in replies:
        server.send(f"PUB {reply} 1\r\ny\r\n")
    assert [subject for subject, *_ in messages(asker)] == ["in.2", "in.3", "in.4"]


def test_requests_in_a_circle_end() -> None:
    accounts = [
        AccountSettings(
            "A",
            exports=[Export("x.*", service=True)],
            imports=[Import("B", "y.1", service=True, to="x.1")],
        ),
        AccountSettings(
            "B",
            exports=[Export("y.*", service=True)],
            imports=[Import("A", "x.1", service=True, to="y.1")],
        ),
    ]
    house = House(accounts)
    asker = house.of("A")
    asker.send("SUB in 1\r\nPUB x.1 in 0\r\n\r\n")
    assert statuses(asker) == [b"NATS/1.0 503"]
    assert not house.errors


# -- as settings change


def test_imports_come_and_go() -> None:
    house = House([AccountSettings("A"), AccountSettings("B")])
    speaker, listener = house.of("A"), house.of("B")
    listener.send("SUB > 1\r\n")

    def heard() -> list[str]:
        speaker.send("PUB news.today 0\r\n\r\n")
        return [subject for subject, *_ in messages(listener)]

    assert heard() == []
    exporter = AccountSettings("A", exports=[Export("news.*")])
    importer = AccountSettings("B", imports=[Import("A", "news.*")])
    house.accounts.put(importer)
    assert heard() == []
    house.accounts.put(exporter)
    assert heard() == ["news.today"]
    house.accounts.put(AccountSettings("B", imports=[Import("A", "news.*", prefix="a")]))
    assert heard() == ["a.news.today"]
    house.accounts.put(AccountSettings("A", exports=[Export("news.*", accounts=["C"])]))
    assert heard() == []
    house.accounts.put(exporter)
    assert heard() == ["a.news.today"]
    house.accounts.apply([exporter])
    assert "B" not in house.accounts.by_name
    assert heard() == []


def test_an_import_may_come_before_its_exporter() -> None:
    house = House([])
    house.accounts.put(AccountSettings("B", imports=[Import("A", "news.*")]))
    house.accounts.put(AccountSettings("A", exports=[Export("news.*")]))
    speaker, listener = house.of("A"), house.of("B")
    listener.send("SUB news.* 1\r\n")
    speaker.send("PUB news.1 0\r\n\r\n")
    assert len(messages(listener)) == 1


def test_a_service_that_is_no_longer_exported_forgets_its_requests() -> None:
    house = House(pair(Export("q", service=True)))
    server, asker, replies = asked(house)
    house.accounts.put(AccountSettings("A"))
    assert pending(house) == 0
    server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    asker.send("PUB q in.9 0\r\n\r\n")
    assert messages(server) == messages(asker) == []


def test_an_unchanged_import_goes_on_through_a_reload() -> None:
    accounts = pair(Export("q", service=True))
    house = House(accounts)
    server, asker, replies = asked(house)
    house.accounts.apply(accounts)
    server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    assert [body for *_, body in messages(asker)] == [b"y"]


@pytest.mark.parametrize("how", ["put", "apply"])
def test_the_imports_of_many_accounts_follow_an_exporter_in_slices(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No turn links many more than AT_ONCE; a service that is gone takes no request meanwhile."""
    subjects = [f"q.{number}.*" for number in range(40)]
    exporter = AccountSettings("A", exports=[Export(each, service=True) for each in subjects])
    imports = [Import("A", each, service=True) for each in subjects]
    others = [AccountSettings(f"B{number}", imports=imports) for number in range(100)]
    house = House([exporter, *others])
    house.accounts.finish_links()
    linked: list[int] = []
    link = ActiveImports._import

    def count(active: ActiveImports, account: ServerAccount) -> None:
        linked.append(len(account.settings.imports))
        link(active, account)

    monkeypatch.setattr(ActiveImports, "_import", count)
    server, asker = house.of("A"), house.of("B99")
    server.send("SUB q.*.1 1\r\n")
    asker.send("SUB > 1\r\n")

    def change(settings: AccountSettings) -> int:
        """The number of turns until all imports follow."""
        if how == "put":
            house.accounts.put(settings)
        else:
            house.accounts.apply([settings, *others])
        turns = 0
        while linked:
            assert sum(linked) <= AT_ONCE + len(imports)
            linked.clear()
            house.reactor.turn()
            turns += 1
        return turns

    for settings, answers in ((AccountSettings("A"), 0), (exporter, 1)):
        changed = change(settings)
        assert changed >= 3
        asker.send("PUB q.7.1 in.1 1\r\nx\r\n")
        assert len(messages(server)) == answers
    house.accounts.put(AccountSettings("A"))
    asker.send("PUB q.7.1 in.1 1\r\nx\r\n")
    assert messages(server) == []
    assert pending(house) == 0
    house.accounts.finish_links()
    house.reactor.settle()
    assert pending(house) == 0


def test_a_reload_without_exports_costs_as_little_for_each_of_many() -> None:
    """Twice as many take about twice as long, in processor time."""

    def cost(count: int) -> float:
        exports = [Export(f"q.{number}.*", service=True) for number in range(count)]
        exports += [Export(f"s.{number}.*") for number in range(count)]
        wanted = [Import("A", each.subject, service=each.service) for each in exports]
        house = House([AccountSettings("A", exports=exports), AccountSettings("B", imports=wanted)])
        begin = time.thread_time()
        house.accounts.apply([AccountSettings("A"), AccountSettings("B")])
        house.accounts.finish_links()
        return time.thread_time() - begin

    few, many = min(cost(1000) for _ in range(3)), min(cost(8000) for _ in range(3))
    assert many < 24 * few


def test_an_import_that_is_not_sound_is_left_out_and_told() -> None:
    house = House([])
    lines: list[str] = []
    house.accounts.report = lines.append
    house.accounts.put(AccountSettings("A", exports=[Export("a.*.*")]))
    house.accounts.put(AccountSettings("B", imports=[Import("A", "a.*.*", to="b.$1")]))
    assert len(lines) == 1
    assert "not using all of the token wildcard(s)" in lines[0]


def test_hooks_hear_of_every_account() -> None:
    house = House([AccountSettings("A")])
    made: list[str] = []
    gone: list[str] = []
    house.accounts.when_made(lambda account: made.append(account.name))
    house.accounts.on_removed.append(lambda account: gone.append(account.name))
    house.accounts.put(AccountSettings("B"))
    house.accounts.apply([])
    assert made == ["$G", "$SYS", "A", "B"]
    assert gone == ["A", "B"]


def test_mappings_follow_the_settings() -> None:
    house = House([AccountSettings("A", mappings=[Mapping("a", [MappingTarget("b")])])])
    client = house.of("A")
    client.send("SUB > 1\r\nPUB a 0\r\n\r\n")
    assert [subject for subject, *_ in messages(client)] == ["b"]
    house.accounts.put(AccountSettings("A"))
    client.send("PUB a 0\r\n\r\n")
    assert [subject for subject, *_ in messages(client)] == ["a"]


# -- what a service is told


def test_a_service_is_told_who_asks_as_far_as_it_may_be() -> None:
    for share, told in ((False, {"acc"}), (True, {"acc", "id", "start", "server", "kind"})):
        house = House(pair(Export("q", service=True), share=share))
        server, asker = house.of("A"), house.of("B")
        server.send("SUB q 1\r\n")
        asker.send("PUB q 1\r\nx\r\n")
        (event,) = [event for event in server.events() if len(event) > 5]
        name, _, text = event[4].split(b"\r\n")[1].partition(b": ")
        assert name == b"Nats-Request-Info"
        info = json.loads(text)
        assert info["acc"] == "B"
        assert told <= set(info)
        assert share or set(info) <= {"acc", "rtt"}


def test_times_are_told_in_the_account_that_serves() -> None:
    house = House(pair(Export("q", service=True, latency=Latency("times"))))
    server, _, replies = asked(house)
    server.send("SUB times 2\r\n")
    house.clock.advance(3_000_000)
    server.send(f"PUB {replies[0]} 1\r\ny\r\n")
    (event,) = [json.loads(body) for _, sid, _, body in messages(server) if sid == 2]
    assert event["status"] == 200
    assert event["total"] == event["service"] == 3_000_000
    assert event["requestor"]["acc"] == "B"
    assert event["responder"]["acc"] == "A"
