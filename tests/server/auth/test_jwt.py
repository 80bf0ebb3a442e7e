"""JWTs: what is signed comes back, what was changed does not, garbage is a documented error."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton import nkeys
from pelton.core.base.clock import Clock
from pelton.core.broker.reactor import Reactor
from pelton.core.broker.request_queue import RequestQueue
from pelton.core.broker.router import CallbackSink, Router
from pelton.server.auth.claims import (
    KEYS_MAX,
    PLACES_MAX,
    SHARED_MAX,
    SUBJECTS_MAX,
    AccountClaims,
    ActivationClaims,
    GenericClaims,
    OperatorClaims,
    ResponseClaims,
    UserClaims,
)
from pelton.server.auth.claims_services import READ_AT_ONCE, ClaimsServices
from pelton.server.auth.connect_options import Credentials
from pelton.server.auth.folder_resolver import FolderResolver
from pelton.server.auth.jwt import JwtError, decode, encode
from pelton.server.auth.operator import LOADED_AT_ONCE, OperatorMode
from pelton.server.auth.resolvers import MemoryResolver
from pelton.server.auth.result import AuthContext, Refused
from pelton.server.settings import Settings
from pelton.server.settings.operator import Operator, Resolver
from tests.server.auth import signed
from tests.server.auth.signed import (
    ACCOUNT,
    OPERATOR,
    OTHER,
    SCOPED,
    SYSTEM,
    USER,
    account_jwt,
    operator_jwt,
    pair,
    user_jwt,
)

KINDS = (
    UserClaims,
    AccountClaims,
    OperatorClaims,
    ActivationClaims,
    ResponseClaims,
    GenericClaims,
)
# Written by an older library, version 1.
OLD_USER = (
    {"typ": "jwt", "alg": "ed25519"},
    {"iss": ACCOUNT.public, "sub": USER.public, "type": "user", "tags": ["t"], "nats": {"pub": {}}},
)


def part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def old_style(header, claims, pair):
    body = part(claims)
    signature = base64.urlsafe_b64encode(pair.sign(body.encode())).decode().rstrip("=")
    return f"{part(header)}.{body}.{signature}"


def test_user():
    token = user_jwt(account=ACCOUNT, pub={"allow": ["a"]}, tags=["x:y"], claims={"exp": 5})
    claims = decode(token, UserClaims)
    assert (claims.sub, claims.iss, claims.exp) == (USER.public, ACCOUNT.public, 5)
    assert claims.account == ACCOUNT.public
    assert claims.nats.pub.allow == ["a"]
    assert claims.nats.subs == -1
    assert not claims.nats.empty
    assert list(claims.problems()) == []


def test_what_is_absent_is_nothing_but_in_a_template():
    assert decode(user_jwt(limits=False), UserClaims).nats.subs == 0
    assert decode(user_jwt(limits=False), UserClaims).nats.empty
    scope = {"kind": "user_scope", "key": SCOPED.public, "template": {"pub": {"deny": ["a"]}}}
    found = decode(account_jwt(signing_keys=[scope]), AccountClaims).nats.signing_keys[0]
    assert found.template.subs == -1
    assert found.template.pub.deny == ["a"]


def test_version_one():
    claims = decode(old_style(*OLD_USER, ACCOUNT), UserClaims)
    assert (claims.nats.subs, claims.nats.tags) == (-1, ["t"])
    with pytest.raises(JwtError, match="signature"):
        decode(old_style(*OLD_USER, OPERATOR), UserClaims)


def test_the_signature_covers_claims_and_header():
    token = user_jwt()
    head, body, signature = token.split(".")
    for changed in (
        f"{part({'typ': 'jwt', 'alg': 'ed25519-nkey'})}.{body}.{signature}",
        f"{head}.{user_jwt(name='other').split('.')[1]}.{signature}",
        f"{head}.{body}.{user_jwt(name='other').split('.')[2]}",
        f"{head}.{body}.",
    ):
        with pytest.raises(JwtError):
            decode(changed, UserClaims)


@pytest.mark.parametrize(
    ("token", "wanted", "words"),
    [
        (user_jwt(), AccountClaims, "not account claim"),
        (account_jwt(), UserClaims, "not user claim"),
        (account_jwt(), OperatorClaims, "not operator claim"),
        (user_jwt(signer=USER), UserClaims, "not of the kind"),
        (user_jwt(signer=OPERATOR), UserClaims, "not of the kind"),
        (account_jwt(signer=USER), AccountClaims, "not of the kind"),
        ("", UserClaims, "3 chunks"),
        ("a.b.c.d", UserClaims, "3 chunks"),
        (f"{part({'typ': 'jwt', 'alg': 'none'})}.{part({})}.", UserClaims, "algorithm"),
        (f"{part({'typ': 'jwt', 'alg': 'HS256'})}.{part({})}.", UserClaims, "algorithm"),
        (f"{part([])}.{part({})}.", UserClaims, "not a JSON object"),
        ("x" * (1 << 20) + ".a.b", UserClaims, "exceeds maximum"),
    ],
)
def test_what_is_refused(token, wanted, words):
    with pytest.raises(JwtError, match=words):
        decode(token, wanted)


def test_claims_of_the_wrong_types_are_refused():
    for nats in ({"subs": "many"}, {"pub": ["a"]}, {"tags": 1}):
        token = encode(
            {"sub": USER.public, "nats": {"type": "user", **nats}}, ACCOUNT, signed.now()
        )
        with pytest.raises(JwtError, match="claims are not valid"):
            decode(token, UserClaims)
    newer = json.loads(base64.urlsafe_b64decode(user_jwt().split(".")[1] + "=="))
    newer["nats"]["version"] = 3
    head = part({"typ": "JWT", "alg": "ed25519-nkey"})
    text = f"{head}.{part(newer)}"
    signature = base64.urlsafe_b64encode(ACCOUNT.sign(text.encode())).decode().rstrip("=")
    with pytest.raises(JwtError, match="newer version"):
        decode(f"{text}.{signature}", UserClaims)


@given(st.text(max_size=60))
def test_garbage(text):
    for token in (text, f"{text}.{text}.{text}", f"eyJ.{text}.x"):
        for kind in KINDS:
            with pytest.raises(JwtError):
                decode(token, kind)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(
    st.sampled_from(["user", "account", "operator", "activation", "authorization_response"]),
    st.sampled_from(KINDS),
    st.dictionaries(
        st.sampled_from(
            ["limits", "pub", "sub", "src", "times", "signing_keys", "exports", "mappings", "tags"]
        ),
        JSON,
    ),
)
def test_any_claims_are_read_or_refused(kind, wanted, nats):
    pair = OPERATOR if kind in ("operator", "account", "activation") else ACCOUNT
    token = encode({"sub": USER.public, "nats": {"type": kind, **nats}}, pair, 1)
    try:
        claims = decode(token, wanted)
    except JwtError:
        return
    for problem in getattr(claims, "problems", list)():
        assert isinstance(problem, str)


def test_deep_json_is_refused():
    deep = base64.urlsafe_b64encode(b"[" * 100_000).decode()
    with pytest.raises(JwtError):
        decode(f"{deep}.{deep}.{deep}", UserClaims)


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        ({"pub": {"allow": ["a b"]}}, '"a b"'),
        ({"sub": {"deny": ["a b c"]}}, '"a b c"'),
        ({"sub": {"deny": [".a"]}}, '".a"'),
        ({"src": ["10.0.0.1"]}, "cidr"),
        ({"times": [{"start": "25:00:00", "end": "1"}]}, "time range"),
        ({"times_location": "Atlantis/City"}, "time zone"),
        ({"issuer_account": USER.public}, "account public key"),
    ],
)
def test_users_that_make_no_sense(nats, words):
    problems = list(decode(user_jwt(**nats), UserClaims).problems())
    assert len(problems) == 1
    assert words in problems[0]


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        ({"limits": {"imports": 0}, "imports": [{"subject": "a", "type": "stream"}]}, "imports"),
        ({"limits": {"exports": 0}, "exports": [{"subject": "a", "type": "stream"}]}, "exports"),
        (
            {
                "limits": {"exports": 1, "wildcards": False},
                "exports": [{"subject": "a.*", "type": "stream"}],
            },
            "wildcard",
        ),
        ({"exports": [{"subject": "a", "type": "letter"}]}, "letter"),
        ({"signing_keys": [USER.public]}, "account public key"),
        ({"authorization": {"allowed_accounts": [ACCOUNT.public]}}, "without users"),
        ({"authorization": {"auth_users": [ACCOUNT.public]}}, "user public key"),
        ({"authorization": {"auth_users": [USER.public], "xkey": "X"}}, "xkey"),
        (
            {"mappings": {"a": [{"subject": "b", "weight": 60}, {"subject": "c", "weight": 60}]}},
            "100%",
        ),
        ({"default_permissions": {"pub": {"allow": ["a b"]}}}, '"a b"'),
    ],
)
def test_accounts_that_make_no_sense(nats, words):
    problems = list(decode(account_jwt(**nats), AccountClaims).problems())
    assert any(words in problem for problem in problems), problems


def test_who_signs_for_an_operator():
    loose = decode(signed.operator_jwt(), OperatorClaims)
    assert loose.keys == [OPERATOR.public, signed.OPERATOR_SIGNER.public]
    strict = decode(signed.operator_jwt(strict_signing_key_usage=True), OperatorClaims)
    assert strict.keys == [signed.OPERATOR_SIGNER.public]
    assert list(loose.problems()) == []
    assert not nkeys.is_public(loose.nats.system_account, nkeys.USER)


MANY = {
    "subjects": ["a"] * (SUBJECTS_MAX + 1),
    "networks": ["10.0.0.0/8"] * (PLACES_MAX + 1),
    "times": [{"start": "01:00:00", "end": "02:00:00"}] * (PLACES_MAX + 1),
    "keys": [SCOPED.public] * (KEYS_MAX + 1),
    "shared": [{"subject": "a", "type": "service"}] * (SHARED_MAX + 1),
}


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        ({"pub": {"allow": MANY["subjects"]}}, "10000 subjects"),
        ({"sub": {"deny": MANY["subjects"]}}, "10000 subjects"),
        ({"src": MANY["networks"]}, "1000 networks"),
        ({"times": MANY["times"]}, "1000 networks or times"),
    ],
)
def test_a_user_has_so_much_and_no_more(nats, words):
    assert words in next(decode(user_jwt(**nats), UserClaims).problems())
    fewer = {
        name: {key: each[1:] for key, each in value.items()}
        if isinstance(value, dict)
        else value[1:]
        for name, value in nats.items()
    }
    assert list(decode(user_jwt(**fewer), UserClaims).problems()) == []


@pytest.mark.parametrize(
    ("nats", "words"),
    [
        ({"signing_keys": MANY["keys"]}, "5000 signing keys"),
        ({"exports": MANY["shared"]}, "3000 exports, imports and mappings"),
        (
            {
                "signing_keys": [
                    {
                        "kind": "user_scope",
                        "key": SCOPED.public,
                        "template": {"pub": {"allow": MANY["subjects"]}},
                    }
                ]
            },
            "10000 subjects in the templates",
        ),
        ({"default_permissions": {"sub": {"deny": MANY["subjects"]}}}, "10000 subjects"),
    ],
)
def test_an_account_has_so_much_and_no_more(nats, words):
    assert words in next(decode(account_jwt(**nats), AccountClaims).problems())


class Place:
    """Takes accounts."""

    def put(self, settings):
        return settings


def test_only_what_a_trusted_key_has_signed_is_looked_at(monkeypatch):
    """Whoever signs a JWT with a key of his own can't make the server work on a megabyte of it."""
    looked = []
    for kind in (UserClaims, AccountClaims):
        monkeypatch.setattr(kind, "problems", lambda self: iter(looked.append(self) or ()))
    resolver = MemoryResolver({ACCOUNT.public: account_jwt()})
    settings = Settings(operator=Operator(jwts=[operator_jwt()]))
    mode = OperatorMode(settings, resolver, Place(), lambda: signed.now() * 10**9)
    stranger = user_jwt(signer=OTHER, account=ACCOUNT)
    context = AuthContext("10.0.0.1", "n")
    assert isinstance(mode.check(Credentials(jwt=stranger), context), Refused)
    with pytest.raises(JwtError, match="trusted operator"):
        mode.take(account_jwt(OTHER, signer=pair(nkeys.OPERATOR, 77)))
    assert [each.sub for each in looked] == [ACCOUNT.public]  # the account's own, from the resolver
    mode.check(Credentials(jwt=user_jwt()), context)
    assert [each.sub for each in looked] == [ACCOUNT.public, USER.public]


def test_an_update_that_no_trusted_operator_signed_is_not_looked_at(monkeypatch):
    looked = []
    monkeypatch.setattr(AccountClaims, "problems", lambda self: iter(looked.append(self) or ()))
    settings = Settings(operator=Operator(jwts=[operator_jwt()]))
    mode = OperatorMode(settings, MemoryResolver({}), Place(), lambda: signed.now() * 10**9)
    reactor = Reactor(Clock())
    router = Router(reactor)
    heard = []
    router.attach("in", CallbackSink(lambda *message: bool(heard.append(message[4])) or True))
    ClaimsServices(router, mode, dict, SYSTEM.public, RequestQueue(reactor, print))
    forged = account_jwt(OTHER, signer=pair(nkeys.OPERATOR, 77))
    router.publish_message(f"$SYS.REQ.ACCOUNT.{OTHER.public}.CLAIMS.UPDATE", forged.encode(), "in")
    assert b"not signed by a trusted operator" in heard[0]
    assert looked == []


def test_thousands_of_accounts_are_sent_some_in_each_turn(tmp_path):
    folder = FolderResolver(Resolver("full", directory=str(tmp_path)), lambda: 0)
    accounts = [pair(nkeys.ACCOUNT, 1000 + number) for number in range(5 * READ_AT_ONCE)]
    for each in accounts:
        (tmp_path / f"{each.public}.jwt").write_text(each.public)
        folder.load(each.public)
    reactor = Reactor(Clock())
    reactor.budget.most = 1
    router = Router(reactor)
    settings = Settings(operator=Operator(jwts=[operator_jwt()]))
    mode = OperatorMode(settings, folder, Place(), lambda: signed.now() * 10**9)
    ClaimsServices(router, mode, dict, SYSTEM.public, RequestQueue(reactor, print))
    heard = []
    router.attach("in", CallbackSink(lambda *message: bool(heard.append(message[4])) or True))
    router.publish_message("$SYS.REQ.CLAIMS.PACK", b"", "in")
    assert len(heard) == READ_AT_ONCE
    while heard[-1]:
        before = len(heard)
        reactor.turn()
        assert before < len(heard) <= before + READ_AT_ONCE + 1
    assert len(heard) == len(accounts) + 1
    router.publish_message("$SYS.REQ.CLAIMS.LIST", b"", "in")
    assert json.loads(heard[-1])["data"] == sorted(each.public for each in accounts)


@pytest.mark.parametrize("shape", ["chain", "star"])
def test_accounts_that_others_import_from_are_loaded_some_in_each_turn(shape):
    """However many there are, and however long the way from one to the next is."""
    keys = [pair(nkeys.ACCOUNT, 1000 + number) for number in range(450)]
    others = {n: keys[n + 1 : n + 2] if shape == "chain" else () for n in range(450)}
    if shape == "star":
        others[0] = keys[1:]
    tokens = {}
    for number, key in enumerate(keys):
        imports = [
            {"name": "i", "subject": "s", "type": "service", "account": each.public}
            for each in others[number]
        ]
        tokens[key.public] = account_jwt(key, imports=imports)
    fetched = []
    resolver = MemoryResolver(tokens)
    fetch = resolver.fetch
    resolver.fetch = lambda account, answer: (fetched.append(account), fetch(account, answer))
    settings = Settings(operator=Operator(jwts=[operator_jwt()]))
    mode = OperatorMode(settings, resolver, Place(), lambda: signed.now() * 10**9)
    later = []
    mode.call_at = lambda when_ns, call: later.append(call)
    mode.load(keys[0].public, lambda record: None)
    before = 0
    while True:
        assert len(fetched) - before <= LOADED_AT_ONCE + 1
        before = len(fetched)
        if not later:
            break
        later.pop()()
    assert sorted(fetched) == sorted(tokens)
    assert len(mode.records) == 450
