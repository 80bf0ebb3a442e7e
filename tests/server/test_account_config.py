"""The accounts of a configuration file: what they come to, and what is told of mistakes."""

import pytest

from pelton.server.config import read_config
from pelton.server.errors import ConfigError
from pelton.server.settings import Settings
from pelton.server.settings.accounts import (
    AccountLimits,
    Export,
    Import,
    JetStreamLimits,
    Latency,
    Mapping,
    MappingTarget,
)


def read(text: str) -> Settings:
    return read_config(text, "t.conf", environ={})[0]


def test_all_of_an_account() -> None:
    settings = read(
        """
        mappings: {top: other}
        accounts {
          A {
            users: [{user: u, password: p}, {user: v, password: p, permissions: {publish: y}}]
            default_permissions: {publish: x}
            jetstream: {max_mem: 1M, store: 2M, streams: 3, consumers: 4, max_ack_pending: 5,
                        mem_max_stream_bytes: 6, disk_max_stream_bytes: 7, max_bytes: true}
            limits: {max_conn: 1, max_subs: 2, max_pay: 3, max_leafs: 4}
            exports: [
              {stream: s, accounts: [B]}
              {service: q, response: chunk, threshold: "5s", allow_trace: true}
              {service: "p.*", account_token_position: 2, latency: {sampling: "30%", subject: l}}
            ]
            imports: [
              {stream: {account: B, subject: a}, prefix: x}
              {service: {account: B, subject: b}, to: c, share: true}
            ]
            mappings: {m: [{dest: n, weight: "40%"}, {destination: o, weight: 60, cluster: z}]}
            msg_trace: {dest: t, sampling: "20%"}
          }
          B { exports: [{stream: a}, {service: b}] }
        }
        """
    )
    a, b = settings.accounts
    assert settings.mappings == [Mapping("top", [MappingTarget("other")])]
    assert [(user.name, user.account) for user in settings.all_users()] == [("u", "A"), ("v", "A")]
    permissions = [user.permissions.publish.allow for user in a.users if user.permissions]
    assert permissions == [["x"], ["y"]]
    assert a.jetstream == {"": JetStreamLimits(1_000_000, 2_000_000, 3, 4, 5, 6, 7, True)}
    assert b.jetstream is None
    assert a.limits == AccountLimits(1, 2, 3, 4)
    assert a.exports == [
        Export("s", accounts=["B"]),
        Export("q", service=True, response="Chunked", threshold_ns=5_000_000_000, allow_trace=True),
        Export("p.*", service=True, account_token_position=2, latency=Latency("l", 30)),
    ]
    assert a.imports == [
        Import("B", "a", prefix="x"),
        Import("B", "b", service=True, to="c", share=True),
    ]
    assert a.mappings == [
        Mapping("m", [MappingTarget("n", 40), MappingTarget("o", 60, "z")]),
    ]
    assert (a.trace_destination, a.trace_sampling) == ("t", 20)


@pytest.mark.parametrize("written", ["[A, B]", "{A {}, B: {}}"])
def test_accounts_by_name_alone(written: str) -> None:
    assert [account.name for account in read(f"accounts {written}").accounts] == ["A", "B"]


def test_latency_written_shortly() -> None:
    (account,) = read('accounts {A {exports: [{service: q, latency: "l"}]}}').accounts
    assert account.exports[0].latency == Latency("l", 100)
    (account,) = read(
        "accounts {A {exports: [{service: q, latency: {sampling: headers, subject: l}}]}}"
    ).accounts
    assert account.exports[0].latency == Latency("l", 0)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accounts [A, A]", "Duplicate Account Entry: A"),
        ("accounts {'$G' {}}", '"$G" is a Reserved Account'),
        ("accounts {A: 5}", "Expected map entries for accounts"),
        ("accounts {A {what: 5}}", 'unknown field "what"'),
        ("accounts {A {nkey: foo}}", 'Not a valid public nkey for an account: "foo"'),
        ("accounts {A {limits: {what: 5}}}", 'Unknown field "what" parsing account limits'),
        ("accounts {A {jetstream: maybe}}", "Expected 'enabled' or 'disabled' for string value"),
        ("accounts {A {jetstream: {max_mem: x}}}", 'Expected a parseable size for "max_mem"'),
        ("accounts {A {exports: 5}}", "Exports should be an array"),
        ("accounts {A {imports: [x]}}", "Import Items should be a map with type entry"),
        (
            "accounts {A {exports: [{stream: a, response: stream}]}}",
            "Detected response directive on non-service",
        ),
        (
            "accounts {A {exports: [{service: a, latency: {sampling: 0, subject: l}}]}}",
            "bad sampling percentage, should be 1-100",
        ),
        (
            "accounts {A {imports: [{stream: {account: B, subject: a}, prefix: p, to: t}]}, B {}}",
            "Stream import can not have a 'prefix' and a 'to' property",
        ),
        (
            "accounts {A {imports: [{stream: {account: B, subject: a}}]}, B {}}",
            'Error adding stream import "a": stream import not authorized',
        ),
        (
            "accounts {A {users: [{user: u, password: p}]}, B {users: [{user: u, password: p}]}}",
            'Duplicate user "u" detected',
        ),
        (
            "authorization {user: x, password: y}\naccounts {A {users: [{user: u, password: p}]}}",
            "Can not have a single user/pass and",
        ),
        ("accounts {A {mappings: {a: [{dest: b}]}}}", 'Missing weight for mapping destination "b"'),
        ("mappings: {a: [{dest: b, weight: 101}]}", "Invalid weight 101 for mapping destination"),
        ("mappings: {'a.*': 'b.$2'}", "wildcard index out of range"),
        ("system_account: X", "error resolving system account: account missing"),
        (
            "system_account: A\naccounts {A {jetstream: true}}",
            "Not allowed to enable JetStream on the system account",
        ),
        ("accounts {A {msg_trace: 'a.*'}}", 'Trace destination "a.*" is not valid'),
    ],
)
def test_mistakes_are_told(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert problem in str(caught.value)
    assert "t.conf:" in str(caught.value)
