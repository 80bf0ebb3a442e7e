"""Accounts that share with each other in all ways, against a model that looks at every subscription."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.core.protocol.subjects import matches
from pelton.server.accounts import active_imports
from pelton.server.accounts.sharing import Imports
from pelton.server.settings.accounts import STREAMED, AccountSettings, Export, Import
from tests.core.wires import Client
from tests.server.accounts_house import House, messages
from tests.ways import length

NAMES = ("A", "B", "C")
TOKENS = ("a", "b")
PATTERNS = ("a.>", "a.*", "*.b", "a.b")
SUBJECTS = tuple(f"{x}.{y}" for x in TOKENS for y in TOKENS)
INBOX = "in"


@dataclass
class Shared:
    """One import as the model sees it."""

    importer: str
    wanted: Import

    def to_importer(self, subject: str) -> str | None:
        """A stream's subject for the importer."""
        if not matches(subject, self.wanted.subject):
            return None
        return f"p.{subject}" if self.wanted.prefix else subject

    def to_exporter(self, subject: str) -> str | None:
        """A request's subject for the exporter."""
        if self.wanted.to:
            if not subject.startswith("s."):
                return None
            subject = subject[2:]
        return subject if matches(subject, self.wanted.subject) else None


@dataclass
class Model:
    """Lists, and loops over them."""

    imports: list[Shared]
    exports: dict[str, list[Export]]
    subscriptions: list[tuple[str, int, str]] = field(default_factory=list)  # account, sid, pattern
    hops: list[bool] = field(
        default_factory=list
    )  # of a request, whether its answer may still come

    def local(
        self, account: str, subject: str, reply: object
    ) -> list[tuple[str, int, str, object]]:
        return [
            (account, sid, subject, reply)
            for owner, sid, pattern in self.subscriptions
            if owner == account and matches(subject, pattern)
        ]

    def publish(
        self,
        account: str,
        subject: str,
        reply: tuple[int, ...] | None,
        asked: tuple[tuple[str, str], ...] = (),
        seen: bool = False,
    ) -> list[tuple[str, int, str, object]]:
        """Who gets it: (account, sid, subject, hops of the reply; None: there is no reply)."""
        got = self.local(account, subject, reply)
        for each in self.imports:
            wanted = each.wanted
            if not wanted.service and wanted.account == account and not seen:
                place = each.to_importer(subject)
                if place is not None:
                    got += self.local(each.importer, place, reply)
            if wanted.service and each.importer == account:
                target = each.to_exporter(subject)
                export = self.export_of(wanted)
                if target is None or export in asked:
                    continue
                chain = reply
                if reply is not None:
                    self.hops.append(True)
                    chain = (*reply, len(self.hops) - 1)
                further = self.publish(wanted.account, target, chain, (*asked, export), True)
                if not further and chain is not None:
                    self.hops[chain[-1]] = False
                got += further
        return got

    def export_of(self, wanted: Import) -> tuple[str, str]:
        exports = [each for each in self.exports[wanted.account] if each.service]
        same = [each for each in exports if each.subject == wanted.subject]
        found = (same or [each for each in exports if each.subject == ">"])[0]
        return wanted.account, found.subject


@st.composite
def topologies(draw: st.DrawFn) -> list[AccountSettings]:
    accounts = [
        AccountSettings(name, exports=[Export(">"), Export(">", service=True)]) for name in NAMES
    ]
    for account in accounts:
        for subject in draw(st.lists(st.sampled_from(PATTERNS), max_size=2, unique=True)):
            account.exports.append(Export(subject, service=True))
    checked = Imports(accounts)
    for _ in range(draw(st.integers(2, 10))):
        importer, exporter = draw(st.permutations(NAMES))[:2]
        service = draw(st.booleans())
        wanted = Import(exporter, draw(st.sampled_from(PATTERNS)), service=service)
        if draw(st.booleans()):
            wanted.prefix = "" if service else "p"
            wanted.to = f"s.{wanted.subject}" if service else ""
        if not checked.add(importer, wanted):
            next(each for each in accounts if each.name == importer).imports.append(wanted)
    return accounts


@settings(max_examples=length(30, 150), deadline=None)
@given(st.data())
def test_everything_goes_where_the_model_says(data: st.DataObject) -> None:
    accounts = data.draw(topologies())
    house = House(accounts)
    model = Model(
        [Shared(each.name, wanted) for each in accounts for wanted in each.imports],
        {each.name: each.exports for each in accounts},
    )
    clients = {name: house.of(name) for name in NAMES}
    for name in NAMES:
        clients[name].send(f"SUB {INBOX} 1\r\n")
    for sid in range(2, 2 + data.draw(st.integers(3, 12))):
        subscribe(data, clients, model, sid)
    for _ in range(data.draw(st.integers(2, 10))):
        account = data.draw(st.sampled_from(NAMES))
        subject = data.draw(st.sampled_from(SUBJECTS))
        if data.draw(st.booleans()):
            subject = data.draw(st.sampled_from(("s.", "p."))) + subject
        if data.draw(st.booleans()):
            clients[account].send(f"PUB {subject} 1\r\nx\r\n")
            compare(clients, model.publish(account, subject, None))
        else:
            request(data, clients, model, account, subject)
        if model.subscriptions and data.draw(st.booleans()):
            owner, sid, _ = model.subscriptions.pop(0)
            clients[owner].send(f"UNSUB {sid}\r\n")
    assert not house.errors


def heard(house: House) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """(account, subject) of a publish -> (account, subject) of each subscriber that hears it."""
    clients = {name: house.of(name) for name in NAMES}
    for client in clients.values():
        client.send("SUB *.* 1\r\nSUB *.*.* 2\r\n")
    found = {}
    for name in NAMES:
        for subject in (*SUBJECTS, *(f"s.{each}" for each in SUBJECTS)):
            clients[name].send(f"PUB {subject} 1\r\nx\r\n")
            found[name, subject] = sorted(
                (other, text) for other in NAMES for text, *_ in messages(clients[other])
            )
    return found


@settings(max_examples=length(20, 100), deadline=None)
@given(
    topologies(),
    st.lists(
        st.tuples(st.sampled_from(["put", "apply", "turn", "finish"]), topologies()), max_size=6
    ),
)
def test_after_changes_that_follow_in_slices_all_is_as_if_made_anew(
    first: list[AccountSettings], steps: list[tuple[str, list[AccountSettings]]]
) -> None:
    """One account's imports in each turn; a change may come before those of the last one are linked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_imports, "AT_ONCE", 1)
        house = House(first)
        for how, accounts in steps:
            if how == "put":
                for each in accounts[:2]:
                    house.accounts.put(each)
            elif how == "apply":
                house.accounts.apply(accounts)
            elif how == "turn":
                house.reactor.turn()
            else:
                house.accounts.finish_links()
        house.reactor.settle()
    final = [house.accounts.by_name[name].settings for name in NAMES]
    assert heard(house) == heard(House(final))
    assert not house.errors


def subscribe(data: st.DataObject, clients: dict[str, Client], model: Model, sid: int) -> None:
    owner = data.draw(st.sampled_from(NAMES))
    pattern = data.draw(st.sampled_from(("", "p.", "s."))) + data.draw(st.sampled_from(PATTERNS))
    clients[owner].send(f"SUB {pattern} {sid}\r\n")
    model.subscriptions.append((owner, sid, pattern))


def compare(
    clients: dict[str, Client], expected: list[tuple[str, int, str, object]]
) -> dict[object, tuple[str, str]]:
    """What came against what should have; (account, reply subject) by the hops of the reply."""
    got = sorted(
        (name, sid, subject, reply)
        for name, client in clients.items()
        for subject, sid, reply, _ in messages(client)
    )
    assert [each[:3] for each in got] == sorted(each[:3] for each in expected)
    # the same reply subject exactly where the way back is the same
    places: dict[tuple[str, int, str], list[object]] = {}
    for name, sid, subject, hops in expected:
        places.setdefault((name, sid, subject), []).append(hops)
    replies: dict[object, tuple[str, str]] = {}
    for name, sid, subject, reply in got:
        hops = places[name, sid, subject]
        if len(hops) == 1:
            known = replies.setdefault(hops[0], (name, reply))
            assert known[1] == reply
            assert reply.startswith("_R_.") == bool(hops[0])
    return replies


def request(
    data: st.DataObject,
    clients: dict[str, Client],
    model: Model,
    account: str,
    subject: str,
) -> None:
    clients[account].send(f"PUB {subject} {INBOX} 1\r\nx\r\n")
    replies = compare(clients, model.publish(account, subject, ()))
    for hops, (name, reply) in replies.items():
        if not hops:  # what has no way back of its own stays where it is
            continue
        clients[name].send(f"PUB {reply} 1\r\ny\r\n")
        came = all(model.hops[hop] for hop in hops)
        # the answer closes every hop that it comes through
        for hop in reversed(hops):
            if not model.hops[hop]:
                break
            model.hops[hop] = False
        got = [
            (owner, sid, body)
            for owner, client in clients.items()
            for _, sid, _, body in messages(client)
        ]
        assert got == ([(account, 1, b"y")] if came else [])


def test_streamed_answers_are_counted_by_nobody() -> None:
    accounts = [
        AccountSettings("A", exports=[Export("q", service=True, response=STREAMED)]),
        AccountSettings("B", imports=[Import("A", "q", service=True)]),
    ]
    house = House(accounts)
    server, asker = house.of("A"), house.of("B")
    server.send("SUB q 1\r\n")
    asker.send("SUB in 1\r\nPUB q in 1\r\nx\r\n")
    reply = messages(server)[0][2]
    for number in range(5):
        server.send(f"PUB {reply} 1\r\n{number}\r\n")
    assert [body for _, _, _, body in messages(asker)] == [b"%d" % number for number in range(5)]
