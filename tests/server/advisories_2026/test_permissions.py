"""Permissions that could be passed by."""

from __future__ import annotations

import pytest

from pelton.server.auth.claims import (
    AccountClaims,
    AccountPart,
    Permission,
    Template,
    UserClaims,
    UserPart,
)
from pelton.server.auth.scoped_keys import EXPANSIONS_MAX, ScopeError, fill
from tests.peers import free_port
from tests.server.auth import signed
from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured
from tests.server.test_hostile_leafs import join_as

both = pytest.mark.parametrize("kind", KINDS)

USERS = """
authorization {{ users: [
    {{ user: all, password: x }}
    {{ user: few, password: x, permissions: {{ {permissions} }} }}
] }}
"""


def logged_in(server, user="few"):
    talk = Talk(server)
    assert talk.connect(user=user, headers=True, **{"pass": "x"}) == OK
    return talk


def refused(subject, queue=""):
    using = f' using queue "{queue}"' if queue else ""
    return f"-ERR 'Permissions Violation for Subscription to \"{subject}\"{using}'"


@both
def test_a_queue_rule_does_not_lift_a_plain_deny(kind, tmp_path):
    """2026-18 (79c2f6e9f)."""
    text = USERS.format(permissions='subscribe: { allow: ">", deny: ["admin.>", "> restricted"] }')
    with configured(kind, tmp_path, text) as server, logged_in(server) as talk:
        for subject, queue in [
            ("admin.secret", "workers"),
            ("admin.secret", ""),
            ("x", "restricted"),
        ]:
            answer = talk.say(f"SUB {subject} {queue} 1\nPING\n")
            assert answer == refused(subject, queue)
            assert talk.line() == OK
        assert talk.say("SUB x workers 2\nPING\n") == OK


@both
@pytest.mark.parametrize("queue", ["", "workers"])
@pytest.mark.parametrize(
    ("deny", "subscribed", "blocked", "delivered"),
    [
        ("*.secret", "foo.*", "foo.secret", "foo.public"),
        ("foo.*.bar", "foo.baz.*", "foo.baz.bar", "foo.baz.qux"),
        ("*.*.bar", "foo.*.*", "foo.baz.bar", "foo.baz.qux"),
        ("a.>", "*.b", "a.b", "z.b"),
    ],
)
def test_a_deny_that_overlaps_a_subscription_holds(
    kind, queue, deny, subscribed, blocked, delivered, tmp_path
):
    """8ced85a11."""
    text = USERS.format(permissions=f'subscribe: {{ allow: ">", deny: "{deny}" }}')
    with configured(kind, tmp_path, text) as server, logged_in(server) as talk:
        assert talk.say(f"SUB {subscribed} {queue} 1\nPING\n") == OK
        with logged_in(server, "all") as other:
            assert other.say(f"PUB {blocked} 0\n\nPUB {delivered} 0\n\nPING\n") == OK
        assert talk.line() == f"MSG {delivered} 1 0"


@both
@pytest.mark.parametrize(
    ("deny", "group", "other"),
    [
        ("admin.secret workers", "workers", "auditors"),
        ("admin.secret work.*", "work.prod", "audit.prod"),
    ],
)
def test_a_deny_of_a_queue_holds_for_it_alone(kind, deny, group, other, tmp_path):
    """2a45fb2e1."""
    text = USERS.format(permissions=f'subscribe: {{ allow: ">", deny: "{deny}" }}')
    with configured(kind, tmp_path, text) as server, logged_in(server) as talk:
        subs = f"SUB admin.* {group} denied\nSUB admin.* {other} allowed\nSUB admin.* plain\n"
        assert talk.say(f"{subs}PING\n") == OK
        with logged_in(server, "all") as publisher:
            text = "PUB admin.secret 0\n\nPUB admin.open 0\n\nPING\n"
            assert publisher.say(text) == OK
        got = sorted(line for line in (talk.line() for _ in range(10)) if line)
        assert got == [
            "MSG admin.open allowed 0",
            "MSG admin.open denied 0",
            "MSG admin.open plain 0",
            "MSG admin.secret allowed 0",
            "MSG admin.secret plain 0",
        ]


@both
@pytest.mark.parametrize("rule", ["subscribe", "publish"])
@pytest.mark.parametrize("blank", ["", " ", "\\t", "\\n", " \\t\\r\\n"], ids=repr)
def test_a_blank_permission_is_a_mistake_in_the_configuration(kind, blank, rule, tmp_path):
    """91045691a: and so is a queue in a permission to publish (2a45fb2e1)."""
    text = USERS.format(permissions=f'{rule}: ["{blank}"]')
    with pytest.raises(RuntimeError, match="not a valid subject"), configured(kind, tmp_path, text):
        pass
    text = USERS.format(permissions='publish: { deny: "admin.secret workers" }')
    with pytest.raises(RuntimeError, match="not a valid subject"), configured(kind, tmp_path, text):
        pass


TRACED = """
accounts { A { users: [
    { user: all, password: x }
    { user: few, password: x, permissions: { publish: [open, trace.ok], subscribe: ">" } }
] } }
leafnodes { listen: "127.0.0.1:%d" }
"""


def traced(dest):
    head = f"NATS/1.0\r\nNats-Trace-Dest: {dest}\r\nNats-Trace-Only: true\r\n\r\n"
    return f"open {len(head)} {len(head)}\r\n{head}\r\n"


@both
@pytest.mark.parametrize("leaf", [False, True], ids=["client", "leaf"])
def test_a_trace_goes_where_its_sender_may_publish(kind, leaf, tmp_path):
    """245294c7b, and from a leaf node 44414a598."""
    port = free_port()
    with configured(kind, tmp_path, TRACED % port) as server, logged_in(server, "all") as reader:
        assert reader.say("SUB secret 1\nSUB trace.ok 2\nPING\n") == OK
        if leaf:
            sender = join_as(port, {"user": "few", "pass": "x", "headers": True})
            sender.sendall(f"HMSG {traced('secret')}LMSG trace.ok 0\r\n\r\n".encode())
        else:
            talk = logged_in(server)
            sender = talk.socket
            assert "Permissions Violation" in talk.say(f"HPUB {traced('secret')}".replace("\r", ""))
            talk.send(f"HPUB {traced('trace.ok')}".replace("\r", ""))
        assert reader.line().startswith("MSG trace.ok 2 ")
        sender.close()


USER = UserClaims(sub="U", name="n", nats=UserPart(issuer_account="A", tags=["a:x"]))
ACCOUNT = AccountClaims(sub="A", name="acc", nats=AccountPart())


@pytest.mark.parametrize(
    "subject",
    ["{{unknown()}}", "a.{{tag(}}", "{{ }}.x", "{{tag}}", "{{name}}", "{{subject())}}"],
)
@pytest.mark.parametrize("rule", ["allow", "deny"])
def test_functions_that_a_template_does_not_know_let_nobody_in(subject, rule):
    """739caaf6f: nats-server ended."""
    with pytest.raises(ScopeError):
        fill(Template(pub=Permission(**{rule: [subject]})), USER, ACCOUNT)


@pytest.mark.parametrize("rule", ["allow", "deny"])
def test_the_tags_of_a_user_make_a_bounded_number_of_subjects(rule):
    """f06df13f2."""
    tags = [f"{letter}:{n}" for letter in "ab" for n in range(128)]
    user = UserClaims(sub="U", name="n", nats=UserPart(issuer_account="A", tags=tags))
    with pytest.raises(ScopeError, match=str(EXPANSIONS_MAX)):
        fill(Template(pub=Permission(**{rule: ["{{tag(a)}}.{{tag(b)}}"]})), user, ACCOUNT)


@both
@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"pub": {"allow": ["by.{{unknown()}}"]}}, "an unknown function"),
        ({"pub": {"deny": ["by.{{tag(none)}}"]}}, "a tag that is not there"),
        ({"pub": {"allow": ["by.{{tag(a)}}.{{tag(a)}}"]}}, "too many subjects"),
        ({"sub": {"allow": [" "]}}, "a blank subject"),
        ({"sub": {"deny": ["\t"]}}, "a blank denied subject"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_template_that_cannot_be_filled_in_ends_one_login(kind, template, words, tmp_path):
    """739caaf6f, f06df13f2, 91045691a: the server goes on."""
    limits = {"subs": -1, "data": -1, "payload": -1}
    key = {
        "kind": "user_scope",
        "key": signed.SCOPED.public,
        "role": "r",
        "template": {**template, **limits},
    }
    account = signed.account_jwt(signing_keys=[key])
    bad = signed.user_jwt(
        signer=signed.SCOPED,
        account=signed.ACCOUNT,
        limits=False,
        tags=[f"a:{n}" for n in range(100)],
    )
    with configured(kind, tmp_path, signed.config(account)) as server:
        answer = attempt(server, sign=signed.USER.seed, jwt=bad)
        if "blank" not in words:
            assert answer == VIOLATION
        elif answer == OK:  # nats-server leaves a blank subject out
            assert kind == "nats-server"
        assert attempt(server, sign=signed.USER.seed, jwt=signed.user_jwt()) == OK
