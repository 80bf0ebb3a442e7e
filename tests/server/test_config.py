"""Configuration files: what each key sets, and what is said about mistakes."""

import subprocess
from pathlib import Path

import pytest

from pelton import nkeys
from pelton.server.config import load_config, read_config
from pelton.server.errors import ConfigError
from pelton.server.options import parse_options
from pelton.server.settings import Settings
from pelton.server.settings.users import Permissions, Responses, SubjectPermission, User
from pelton.server.startup import settings_of
from tests.peers import available_servers, command_of

NKEY = nkeys.KeyPair(nkeys.USER, bytes(32)).public
SECOND = 1_000_000_000


def differences(settings):
    """What differs from the defaults."""
    fresh = Settings()
    names = [name for name in Settings.__slots__ if name not in ("config_digest", "config_file")]
    return {n: getattr(settings, n) for n in names if getattr(settings, n) != getattr(fresh, n)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("listen: 127.0.0.1:4333", {"host": "127.0.0.1", "port": 4333}),
        ("listen: 4333", {"port": 4333}),
        ("listen: ':-1'", {"port": -1}),
        ('host: "::1"\nport: 4333', {"host": "::1", "port": 4333}),
        ("net: localhost", {"host": "localhost"}),
        ("PORT: 4333", {"port": 4333}),
        ("server_name: one", {"server_name": "one"}),
        ("http: 8222", {"http_port": 8222}),
        ("http: 127.0.0.1:8222", {"http_host": "127.0.0.1", "http_port": 8222}),
        ("monitor_port: -1", {"http_port": -1}),
        ("jetstream: true", {"jetstream": True}),
        ("jetstream: enabled", {"jetstream": True}),
        ("jetstream: disabled", {}),
        ("jetstream {}", {"jetstream": True}),
        ("jetstream { store_dir: /x }", {"jetstream": True, "store_dir": "/x"}),
        ("jetstream { enabled: false, store: /x }", {"store_dir": "/x"}),
        ("jetstream { sync: always }", {"jetstream": True}),
        ("jetstream { sync_interval: 5s }", {"jetstream": True, "sync_interval_ns": 5 * SECOND}),
        ('jetstream { max_mem: "1G" }', {"jetstream": True, "max_memory": 2**30}),
        ("jetstream { max_file: 1G }", {"jetstream": True, "max_file": 10**9}),
        ("jetstream { max_file: 1GiB }", {"jetstream": True, "max_file": 2**30}),
        (
            'jetstream { limits { max_ack_pending: 9, max_ha_assets: 3, duplicate_window: "1m",'
            ' max_request_batch: -1, batch { max_msgs: 5, timeout: "2s",'
            " max_inflight_total: 4, max_inflight_per_stream: 2 } } }",
            {
                "jetstream": True,
                "jetstream_limits": {
                    "max_ack_pending": 9,
                    "max_ha_assets": 3,
                    "duplicate_window_ns": 60 * SECOND,
                    "max_request_batch": 0,
                },
                "batch_limits": {
                    "max_msgs": 5,
                    "timeout_ns": 2 * SECOND,
                    "max_inflight_total": 4,
                    "max_inflight_per_stream": 2,
                },
            },
        ),
        (
            "jetstream { domain: hub, strict: false }",
            {"jetstream": True, "domain": "hub", "strict": False},
        ),
        ("authorization { user: a, password: 12 }", {"user": "a", "password": "12"}),
        ("authorization { token: t }", {"token": "t"}),
        ("authorization { timeout: 0.5 }", {"auth_timeout_ns": SECOND // 2}),
        ("authorization { timeout: 3 }", {"auth_timeout_ns": 3 * SECOND}),
        (
            "authorization { users: [ {user: a, pass: b}, {username: c, password: d} ] }",
            {"users": [User("a", "b"), User("c", "d")]},
        ),
        ("authorization { timeout: 500ms }", {"auth_timeout_ns": SECOND // 2}),
        (
            "authorization { pass: $2a$11$" + "x" * 53 + ", user: a }",
            {"user": "a", "password": "$2a$11$" + "x" * 53},
        ),
        (
            f"authorization {{ users: [{{nkey: {NKEY}, clients: [websocket, Standard]}}] }}",
            {"users": [User(nkey=NKEY, connection_types=frozenset({"WEBSOCKET", "STANDARD"}))]},
        ),
        (
            """authorization {
                users: [{user: a}, {user: b, permission: {pub: {deny: [x, y]}, sub: "s q"}}]
                default_permissions: {publish: p, allow_responses: {max: 0, expires: "0s"}}
            }
            no_auth_user: b""",
            {
                "users": [
                    User(
                        "a",
                        permissions=Permissions(SubjectPermission(["p"]), responses=Responses()),
                    ),
                    User(
                        "b",
                        permissions=Permissions(
                            SubjectPermission(deny=["x", "y"]), SubjectPermission(["s q"])
                        ),
                    ),
                ],
                "no_auth_user": "b",
            },
        ),
        (
            "authorization { users: [{user: a, permissions: {allow_responses: {max: -1, ttl: 5s}}}]}",
            {
                "users": [
                    User(
                        "a",
                        permissions=Permissions(
                            SubjectPermission([]), responses=Responses(-1, 5 * SECOND)
                        ),
                    )
                ]
            },
        ),
        ("debug: yes, trace: on, logtime: no", {"debug": True, "trace": True, "logtime": False}),
        (
            "logfile: x\npidfile: y\nports_file_dir: z",
            {"log_file": "x", "pid_file": "y", "ports_file_dir": "z"},
        ),
        ("max_payload: 4MB", {"max_payload": 4 * 2**20}),
        ("max_control_line: 512", {"max_control_line": 512}),
        ("max_pending: 8MB", {"max_pending": 8 * 2**20}),
        ("max_conn: 0", {"max_connections": 0}),
        ("max_subs: 10", {"max_subscriptions": 10}),
        ('ping_interval: "1s"\nping_max: 3', {"ping_interval_ns": SECOND, "ping_max": 3}),
        ("write_deadline: 2s", {"write_deadline_ns": 2 * SECOND}),
        (
            "lame_duck_duration: 1m, lame_duck_grace_period: 1s",
            {"lame_duck_duration_ns": 60 * SECOND, "lame_duck_grace_period_ns": SECOND},
        ),
        ("jetstream { sync_interval: 2m }", {"jetstream": True, "sync_interval_ns": 120 * SECOND}),
        ("P: 4333\nport: $P", {"port": 4333}),
    ],
)
def test_keys_set_settings(text, expected):
    settings, warnings = read_config(text, "t.conf", environ={})
    assert differences(settings) == expected
    assert warnings == []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("port: 4222\nfoo: bar", ['t.conf:2:1: unknown field "foo"']),
        ("jetstream { bogus: 1 }", ['t.conf:1:13: unknown field "bogus"']),
        ('port: "abc"', ['t.conf:1:1: port: expected a whole number, got "abc"']),
        ("port: 1.5", ["expected a whole number, got 1.5"]),
        ("port: -5", ["port: -5 is not a port"]),
        ("port: 70000", ["port: 70000 is not a port"]),
        ("listen: '1.2.3.4:xx'", ["is not a port"]),
        ('trace: "true"', ['trace: expected true or false, got "true"']),
        ("trace: 1", ["trace: expected true or false, got 1"]),
        ("ping_interval: zz", ['"zz" is not a duration']),
        ("max_payload: true", ["max_payload: expected a whole number, got true"]),
        ('max_payload: "1mb"', ["max_payload: expected a whole number"]),
        ("max_payload: 0", ["max_payload: 0 is not between"]),
        ("max_payload: 2MB, max_pending: 1MB", ["can't be larger than max_pending"]),
        ("server_name: 'a b'", ["contain spaces"]),
        ("jetstream: nope", ["expected a map, true, false, enabled or disabled"]),
        ('jetstream { max_mem: "1x" }', ["must end in K, M, G, T"]),
        ("jetstream { limits { max_ack_pending: x } }", ["expected a whole number"]),
        ("jetstream { limits { batch: 5 } }", ["expected a map"]),
        ("jetstream { limits { nonsense: 5 } }", ['unknown field "nonsense"']),
        ("jetstream { limits { max_request_batch: -2 } }", ["-2 is not a limit"]),
        ("jetstream { domain: a.b }", ["a domain must not be empty"]),
        ("lame_duck_duration: 1s", ["at least 30 seconds"]),
        ("lame_duck_grace_period: 3m", ["shorter than lame_duck_duration"]),
        ("authorization: 1", ["expected a map"]),
        ("authorization { user: a, token: b }", ["exclude each other"]),
        ("authorization { user: a, users: [{user: c}] }", ["exclude each other"]),
        ("authorization { pass: a }", ["a password needs a user"]),
        ("authorization { users: [{user: a}, {user: a}] }", ['user "a" is defined twice']),
        ("authorization { users: [{pass: a}] }", ["a user needs a name"]),
        ("authorization { users: [a] }", ["expected a user as a map"]),
        ("authorization { users: {} }", ["expected an array of users"]),
        (
            "authorization { users: [{user: a, permissions: {publish: a b}}] }",
            ["t.conf:1:"],
        ),
        (
            'authorization { users: [{user: a, permissions: {pub: "a b", sub: {allow: "a b c"}}}] }',
            ['"a b" is not a valid subject', '"a b c" is not a valid subject'],
        ),
        (
            "authorization { users: [{user: a, permissions: {allow_responses: 1}}] }",
            ["expected true, false or a map"],
        ),
        ("authorization { users: [{user: a, permissions: {p: a}}] }", ['unknown field "p"']),
        ("authorization { users: [{nkey: UA}] }", ["not a valid public nkey"]),
        (
            f"authorization {{ users: [{{nkey: {NKEY}, user: a}}] }}",
            ["takes no name and no password"],
        ),
        (
            "authorization { users: [{user: a, allowed_connection_types: [phone]}] }",
            ['unknown connection type "PHONE"'],
        ),
        ("no_auth_user: a", ["users/nkeys are not defined"]),
        (
            "authorization { users: [{user: a}] }\nno_auth_user: b",
            ['t.conf:2:1: no_auth_user: "b" not present'],
        ),
        ("authorization { auth_callout { issuer: a } }", ["public account nkey", "auth_users"]),
        ("tls { cert_file: x }", ["t.conf:1:7: cert_file needs a key_file"]),
        (
            "gateway { port: 1 }\nmqtt {}",
            [
                "t.conf:1:1: gateway: the server does not support gateways",
                "t.conf:2:1: mqtt: the server does not support MQTT",
            ],
        ),
        ("port: x\nhttp: y:z\nfoo: 1", ["t.conf:1:1", "t.conf:2:1", "t.conf:3:1"]),
    ],
)
def test_mistakes_are_all_told_with_their_places(text, messages):
    with pytest.raises(ConfigError) as caught:
        read_config(text, "t.conf", environ={})
    lines = str(caught.value).split("\n")
    assert len(lines) == len(messages)
    for line, message in zip(lines, messages, strict=True):
        assert message in line
        assert line.startswith("t.conf:")


def test_a_bare_number_of_seconds_is_taken_with_a_warning():
    settings, warnings = read_config("ping_interval: 5", "t.conf", environ={})
    assert settings.ping_interval_ns == 5 * SECOND
    assert warnings == ['t.conf:1:1: ping_interval should be a duration such as "5s"']


def test_bounds_of_queues_that_are_not_there_are_taken_with_a_warning():
    text = "jetstream { max_buffered_size: 1GB, max_buffered_msgs: 20000 }"
    settings, warnings = read_config(text, "t.conf", environ={})
    assert settings.jetstream
    assert warnings == [
        "t.conf:1:13: max_buffered_size has no effect: the server has no such queue",
        "t.conf:1:37: max_buffered_msgs has no effect: the server has no such queue",
    ]


def test_a_file_includes_relative_to_itself(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "main.conf").write_text("include sub/a.conf\nport: 1")
    (tmp_path / "sub" / "a.conf").write_text("include b.conf")
    (tmp_path / "sub" / "b.conf").write_text("server_name: deep")
    settings, _ = load_config(str(tmp_path / "main.conf"))
    assert (settings.server_name, settings.port) == ("deep", 1)
    assert settings.config_digest.startswith("sha256:")


def test_a_mistake_in_an_include_names_that_file(tmp_path):
    (tmp_path / "main.conf").write_text("port: 1\ninclude bad.conf")
    (tmp_path / "bad.conf").write_text("\nnonsense: 1")
    with pytest.raises(ConfigError, match=r"bad.conf:2:1: this can't be used") as caught:
        load_config(str(tmp_path / "main.conf"))
    assert "nonsense" not in str(caught.value)
    (tmp_path / "bad.conf").write_text("\nproxies: {}\nmax_payload: [1]")
    with pytest.raises(ConfigError) as caught:
        load_config(str(tmp_path / "main.conf"))
    refused, wrong = str(caught.value).splitlines()
    assert '"proxies" is a nats-server setting that this version does not serve' in refused
    assert "bad.conf:3:1: max_payload: this can't be used" in wrong


SECRETS = [
    "s3cret",
    "s3cret\n",
    "s3cret: 1",
    "s3cret s3cret s3cret",
    "root:s3cret:0:0:root:/root:/bin/bash\nbin:s3cret:1:1\n",
    'key = "s3cret',
    "a { s3cret",
    "port: s3cret",
    "operator: s3cret",
    "tls { cert_file: s3cret, s3cret: 1 }",
    "x = $s3cret",
    "include s3cret",
    "authorization { user: s3cret, s3cret: [s3cret }",
    "accounts { s3cret { users: [{user: s3cret, s3cret: 1}] } }",
    "jetstream { key: s3cret, cipher: s3cret }",
    "write_deadline: s3cret",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("text", ["include other", "accounts { include other }", "include through"])
def test_an_include_shows_nothing_of_a_file(tmp_path, secret, text):
    (tmp_path / "other").write_text(secret)
    (tmp_path / "through").write_text("include other")
    path = tmp_path / "main.conf"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_config(str(path))
    assert "s3cret" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    "text", ["port: $v", "cluster: $v", "tls: [$v]", "write_deadline = $v", "leafnodes: {x: [$v]}"]
)
def test_a_variable_of_an_include_is_not_shown(tmp_path, text):
    (tmp_path / "value").write_text("v = s3cret")
    path = tmp_path / "main.conf"
    path.write_text(f"include value\n{text}")
    with pytest.raises(ConfigError, match=r"main.conf:2:\d+: ") as caught:
        load_config(str(path))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00"])
def test_an_unreadable_file_is_a_mistake(tmp_path, content):
    path = tmp_path / "x.conf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"can't read configuration file .*x.conf: "):
        load_config(str(path))


def test_options_win_over_the_file(tmp_path):
    path = tmp_path / "x.conf"
    path.write_text(
        "port: 1\nserver_name: file\njetstream { store_dir: /file }\n"
        "authorization { users: [{user: a, pass: b}] }"
    )
    options = parse_options(["-c", str(path), "-p", "2", "-js=false", "--auth", "t"])
    settings, _ = settings_of(options)
    assert (settings.port, settings.server_name) == (2, "file")
    assert (settings.jetstream, settings.store_dir) == (False, "/file")
    assert (settings.token, settings.users) == ("t", [])


NATS_SERVER = command_of("nats-server") if "nats-server" in available_servers() else None

PEER_TEXTS = [
    "port: 4222, debug: true\n",
    "port: 4222 debug: true\n",
    "port\n4222\n",
    "port:\n4222\n",
    "cluster\n{\n}\n",
    "server_name: a#b # c\n",
    "server_name: (\nabc\n)\n",
    'server_name: "a\\q"\n',
    'server_name: "abc\n',
    "port: 4k\n",
    '{ "port": 4222, "debug": true }\n',
    '{ "port": 4222 }\nfoo: 1',
    "A: 5\nport: $A\n",
    "A: $A\nport: $A\n",
    'jetstream: { max_mem: "1G", max_file: 1G, sync_interval: always }\n',
    'jetstream: { max_mem: "1x"}\n',
    "jetstream: nope\n",
    'jetstream { limits { max_ack_pending: 5, max_request_batch: 7, duplicate_window: "1m" } }\n',
    'jetstream { limits { batch { max_msgs: 5, timeout: "1s" } } }\n',
    "jetstream { limits { nonsense: 5 } }\n",
    "listen: 4333\n",
    'listen: "localhost:-1"\n',
    "authorization { user: a, pass: b, users: [{user: c, password: d}] }\n",
    "authorization { token: x, user: y }\n",
    "authorization { users = [{user: a, pass: b},{user: a, pass: b}] }\n",
    "lame_duck_duration: 1s\n",
    "max_connections: -1\n",
    "port: 1.5\n",
    'trace: "true"\n',
    "include\n",
    'include "no.conf"\n',
    "= 3\n",
    "a: [1 2 3]\n",
    "x {\n y: 1\n",
    "port\n4222; debug: on",
    "'port': 4222",
    '{"port": 4222}',
    "PORT: 4222",
    "port:",
    "port: $NOT_THERE",
    "X = 4222\nport: $X",
    "a { b: $X }\nX = 3",
    "debug: 1",
    "debug: True",
    "max_payload: 1mib",
    "max_payload: 1 MB",
    "max_payload: 1x",
    'max_payload: "1MB"',
    "/* x */ port: 4222",
    "server_name: a b",
    'server_name: "a b"',
    'server_name: "x\\x4"',
    'server_name: "x\\x41"',
    "server_name: (abc)",
    "server_name: $2a$10$abc",
    "server_tags: [a b]",
    "server_tags: [a\nb]",
    "server_tags: [a,,b]",
    "server_tags: [a",
    'server_tags: "a,b"',
    "server_tags: {a: b}",
    "server_metadata {a: b}",
    "server_metadata: a",
    "server_metadata {a: 1}",
    "feature_flags {a: true}",
    "feature_flags {a: 1}",
    "}",
    "{",
    "port: {",
    "http_base_path: x",
    "https_port: 8443",
    "connect_error_reports: 5",
    "connect_error_reports: a",
    "logfile_size_limit: 1MB, logfile_max_num: 3",
    'syslog: true, remote_syslog: "udp://x:514"',
    "trace_verbose: true, trace_headers: true, max_traced_msg_len: 5",
    "write_timeout: retry",
    "write_timeout: nonsense",
    'default_js_domain {"$G": b}',
    "default_js_domain: a",
    "disable_sublist_cache: true",
    'client_advertise: "a:1"',
    "cluster {}",
    'cluster {name: "a b"}',
    "cluster {name: a, routes: []}",
    "cluster {foo: 1}",
    "cluster: 1",
    "gateway {foo: 1}",
    "mqtt {foo: 1}",
    "jetstream { meta_compact: 5, max_outstanding_catchup: 64MB, unique_tag: x }",
    'lame_duck_grace_period: "-1s"',
]


@pytest.mark.peer
@pytest.mark.skipif(NATS_SERVER is None, reason="no nats-server from 2.14 on")
@pytest.mark.parametrize("text", PEER_TEXTS)
def test_a_real_server_accepts_and_refuses_the_same_files(text, tmp_path):
    path = Path(tmp_path, "t.conf")
    path.write_text(text)
    result = subprocess.run(
        [*(NATS_SERVER or []), "-t", "-c", str(path)], capture_output=True, check=False
    )
    try:
        read_config(text, str(path), environ={})
        accepted = True
    except ConfigError:
        accepted = False
    assert accepted == (result.returncode == 0), result.stderr.decode()


@pytest.mark.parametrize("text", ["jetstream { store_dir: %s }", "store_dir: %s"])
def test_a_folder_that_begins_with_a_variable_in_quotes_is_warned_of(text):
    quoted, bare = text % '"$WHERE"', text % "$WHERE"
    settings, warnings = read_config(quoted, "t.conf", environ={"WHERE": "/tmp/x"})
    assert settings.store_dir == "$WHERE"  # as nats-server takes it
    (warning,) = warnings
    assert "store_dir: variables in quotes are not replaced; write $WHERE without them" in warning
    settings, warnings = read_config(bare, "t.conf", environ={"WHERE": "/tmp/x"})
    assert (settings.store_dir, warnings) == ("/tmp/x", [])
