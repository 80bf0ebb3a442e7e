"""``pelton server check``: the forms of a report, the rules, and the commands on every server there is."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pelton import ConsumerConfig, KeyValueConfig, StreamConfig, StreamInfo, StreamSource
from pelton.api.streams import ClusterInfo, PeerInfo, StreamSourceInfo, StreamState
from pelton.cli.server import check_rules as rules
from pelton.cli.server.check_report import CODES, Metric, Report, exit_code, rendered
from pelton.sync import connect
from tests.certificates import Authority
from tests.peers import available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

SECOND_NS = 1_000_000_000

# -- reports ---------------------------------------------------------------------------------------

texts = st.text(max_size=20)
metrics = st.builds(
    Metric,
    st.sampled_from(["a", "b_c"]),
    st.floats(-1e12, 1e12),
    st.just("help"),
    st.sampled_from(["", "s", "%", "B"]),
    st.floats(0, 1e6),
    st.floats(0, 1e6),
)
reports = st.builds(
    Report,
    st.just("suite"),
    texts,
    st.lists(texts, max_size=2),
    st.lists(texts, max_size=2),
    st.lists(texts, max_size=2),
    st.lists(texts, max_size=1),
    st.lists(metrics, max_size=3, unique_by=lambda each: each.name),
)


@given(reports)
def test_every_form_says_the_status(report: Report) -> None:
    worst = "UNKNOWN" if report.unknown else "WARNING" if report.warning else "OK"
    assert report.status == ("CRITICAL" if report.critical else worst)
    nagios = rendered(report, "nagios")
    assert nagios.startswith(f"{report.status} ")
    assert "\n" not in nagios
    assert nagios.count(" | ") == bool(report.metrics)
    data = json.loads(rendered(report, "json"))
    assert (data["status"], data["check_name"]) == (report.status, report.name)
    assert [each["value"] for each in data["perf_data"]] == [each.value for each in report.metrics]
    assert report.status in rendered(report, "text")
    assert exit_code(report, "text") == CODES[report.status]
    assert exit_code(report, "prometheus") == 0


@given(reports)
def test_prometheus_reads_the_metrics(report: Report) -> None:
    report.name = report.name.encode("ascii", "replace").decode()
    families = text_string_to_metric_families(rendered(report, "prometheus") + "\n")
    found = {each.name: each.samples[0] for each in families}
    for metric in report.metrics:
        assert found[f"nats_server_check_suite_{metric.name}"].value == metric.value
    status = found["nats_server_check_suite_status_code"]
    assert status.value == CODES[report.status]
    assert status.labels["status"] == report.status


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_a_metric_is_compared_with_its_thresholds(value: int, warning: int, critical: int) -> None:
    report = Report("s", "n")
    report.above(Metric("m", value, ""), "m", warning=warning, critical=critical)
    expected = "OK"
    if critical and value >= critical:
        expected = "CRITICAL"
    elif warning and value >= warning:
        expected = "WARNING"
    assert report.status == expected
    low = Report("s", "n")
    low.between(Metric("m", value, ""), "m", warning=warning, critical=critical)
    if 0 < critical < warning:
        expected = "CRITICAL" if value <= critical else "WARNING" if value <= warning else "OK"
    assert low.status == expected


# -- rules -----------------------------------------------------------------------------------------

STREAM = dict.fromkeys(
    [
        *("lag-critical", "seen-critical", "min-sources", "max-sources", "peer-expect"),
        *("peer-lag-critical", "peer-seen-critical", "msgs-warn", "msgs-critical"),
        *("subjects-warn", "subjects-critical"),
    ],
    0,
)


def judged(info: StreamInfo, **limits: int) -> tuple[str, list[str]]:
    report = Report("stream", "S")
    rules.stream(report, info, STREAM | {n.replace("_", "-"): v for n, v in limits.items()})
    return report.status, report.critical + report.warning


def with_peers(*peers: PeerInfo, leader: str = "a") -> StreamInfo:
    cluster = ClusterInfo(leader=leader, replicas=list(peers))
    return StreamInfo(config=StreamConfig(name="S", num_replicas=3), cluster=cluster)


@pytest.mark.parametrize(
    ("info", "limits", "expected"),
    [
        (StreamInfo(), {}, ("OK", [])),
        (
            StreamInfo(state=StreamState(messages=5)),
            {"msgs_critical": 5},
            ("CRITICAL", ["5 messages"]),
        ),
        (StreamInfo(state=StreamState(messages=5)), {"msgs_warn": 5}, ("WARNING", ["5 messages"])),
        (StreamInfo(state=StreamState(messages=6)), {"msgs_warn": 5}, ("OK", [])),
        (StreamInfo(), {"min_sources": 1}, ("CRITICAL", ["0 sources"])),
        (
            StreamInfo(),
            {"lag_critical": 1},
            ("CRITICAL", ["the stream has neither a mirror nor sources"]),
        ),
        (
            StreamInfo(sources=[StreamSourceInfo(lag=3), StreamSourceInfo(lag=7)]),
            {"lag_critical": 7},
            ("CRITICAL", ["1 sources lagged"]),
        ),
        (
            StreamInfo(sources=[StreamSourceInfo(active=-1), StreamSourceInfo(active=5)]),
            {"seen_critical": 6},
            ("CRITICAL", ["1 sources inactive"]),
        ),
        (
            StreamInfo(sources=[StreamSourceInfo(lag=6), StreamSourceInfo(active=5)]),
            {"seen_critical": 6, "lag_critical": 7},
            ("OK", []),
        ),
        (StreamInfo(mirror=StreamSourceInfo(lag=7)), {"lag_critical": 7}, ("CRITICAL", ["lag 7"])),
        (
            StreamInfo(mirror=StreamSourceInfo(active=-1)),
            {"seen_critical": SECOND_NS},
            ("CRITICAL", ["the origin was never seen"]),
        ),
        (
            StreamInfo(config=StreamConfig(mirror=StreamSource(name="O"))),
            {},
            ("CRITICAL", ["the mirror has no state"]),
        ),
        (StreamInfo(), {"peer_expect": 3}, ("CRITICAL", ["the stream is not clustered"])),
        (with_peers(PeerInfo(), PeerInfo()), {"peer_expect": 3}, ("OK", [])),
        (with_peers(PeerInfo()), {"peer_expect": 3}, ("CRITICAL", ["2 peers of 3"])),
        (with_peers(leader=""), {"peer_expect": 3}, ("CRITICAL", ["no leader"])),
        (
            with_peers(PeerInfo(offline=True), PeerInfo(lag=9, active=2 * SECOND_NS)),
            {"peer_expect": 3, "peer_lag_critical": 8, "peer_seen_critical": SECOND_NS},
            ("CRITICAL", ["1 replicas offline", "1 replicas lagged", "1 replicas inactive"]),
        ),
    ],
)
def test_a_stream_is_judged(
    info: StreamInfo, limits: dict[str, int], expected: tuple[str, list[str]]
) -> None:
    assert judged(info, **limits) == expected


def test_replicas_and_the_meta_group_are_counted_by_fault() -> None:
    infos = [
        StreamInfo(config=StreamConfig(name="single")),
        with_peers(PeerInfo(), PeerInfo()),
        with_peers(leader=""),
        with_peers(PeerInfo()),
        with_peers(PeerInfo(), PeerInfo(lag=9)),
        with_peers(PeerInfo(), PeerInfo(active=2 * SECOND_NS)),
        with_peers(PeerInfo(), PeerInfo(offline=True)),
        StreamInfo(config=StreamConfig(name="S", num_replicas=3)),
    ]
    report = Report("jetstream", "JetStream")
    limits = {"replica-lag-critical": 8, "replica-seen-critical": SECOND_NS}
    rules.replicas(report, infos, limits)
    assert {each.name: each.value for each in report.metrics} == {
        "replicas_ok": 2,
        "replicas_no_leader": 1,
        "replicas_missing_replicas": 1,
        "replicas_lagged": 1,
        "replicas_not_seen": 1,
        "replicas_fail": 2,
    }
    assert len(report.critical) == 6
    peers = [
        {"name": "b", "current": True, "lag": 9, "active": 2 * SECOND_NS},
        {"name": "c", "current": False, "offline": True},
    ]
    report = Report("meta", "JetStream Meta Cluster")
    group = {"leader": "a", "replicas": peers}
    rules.meta(report, [group], 3, {"lag-critical": 8, "seen-critical": SECOND_NS})
    assert {each.name: each.value for each in report.metrics} == {
        "peers": 3,
        "peer_offline": 1,
        "peer_not_current": 1,
        "peer_inactive": 1,
        "peer_lagged": 1,
    }
    assert report.critical == ["offline: c", "not current: c", "inactive: b", "lagged: b"]


def test_thresholds_of_the_metadata_hold_unless_options_say_otherwise() -> None:
    given = {"lag-critical": None, "seen-critical": None, "msgs-warn": 7, "msgs-critical": None}
    metadata = {
        "io.nats.monitor.lag-critical": "5",
        "io.nats.monitor.seen-critical": "10s",
        "io.nats.monitor.msgs-warn": "9",
    }
    assert rules.with_metadata(given, metadata) == {
        "lag-critical": 5,
        "seen-critical": 10 * SECOND_NS,
        "msgs-warn": 7,
        "msgs-critical": 0,
    }
    with pytest.raises(ValueError, match='"many" is no threshold'):
        rules.with_metadata(given, {"io.nats.monitor.lag-critical": "many"})


@pytest.mark.parametrize(
    ("expires", "required", "status"),
    [(0, True, 2), (0, False, 0), (100, True, 2), (105, True, 2), (130, True, 1), (500, True, 0)],
)
def test_credentials_expire(expires: int, required: bool, status: int) -> None:
    report = Report("credential", "c")
    limits = {"validity-warn": 60, "validity-critical": 10}
    rules.expiry(report, expires, 100, limits, required)
    assert CODES[report.status] == status


# -- commands --------------------------------------------------------------------------------------


@pytest.fixture
def check(peer: ServerProcess, cli: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("NATS_URL", peer.url)
    return lambda *words: cli("server", "check", *words)


def test_a_connection_is_checked(check: Run) -> None:
    patient = [
        f"--{n}-{kind}=1h" for n in ("connect", "rtt", "req") for kind in ("warn", "critical")
    ]
    ran = check("connection", *patient)
    assert ran.status == 0
    assert re.match(
        r"OK Connection OK:connected in \S+ OK:rtt \S+ OK:round trip took \S+ \|", ran.out
    )
    slow = check("conn", "--rtt-critical", "1ns", "--format", "json")
    assert (slow.status, slow.json["status"]) == (2, "CRITICAL")


def test_nobody_there_is_critical(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "nats://127.0.0.1:1")
    ran = cli("server", "check", "jetstream")
    assert (ran.status, ran.out.split(":")[0]) == (2, "CRITICAL JetStream Crit")
    metrics = cli("server", "check", "jetstream", "--format", "prometheus")
    assert metrics.status == 0
    assert 'status_code{item="JetStream",status="CRITICAL"} 2' in metrics.out


def test_streams_consumers_messages_are_checked(
    check: Run, peer: ServerProcess, unique: str, tmp_path: Path
) -> None:
    with connect(peer.url) as client:
        jetstream = client.jetstream()
        metadata = {"io.nats.monitor.msgs-critical": "1"}
        jetstream.create_stream(StreamConfig(name=unique, metadata=metadata))
        jetstream.create_consumer(unique, ConsumerConfig(durable_name="C", ack_policy="explicit"))
        jetstream.publish(unique, b"hello")
        on = ("--stream", unique)
        assert check("stream", *on).out.startswith(
            f"CRITICAL {unique} Crit:1 messages | messages=1"
        )
        assert check("stream", *on, "--msgs-critical", "0", "--msgs-warn", 1).status == 1
        out = tmp_path / "metrics.prom"
        assert check("stream", *on, "--format=prometheus", "--outfile", out).out == ""
        assert f'nats_server_check_stream_messages{{item="{unique}"}} 1' in out.read_text()
        of = (*on, "--consumer", "C")
        assert check("consumer", *of).status == 0
        assert check("consumer", *of, "--unprocessed-critical", 1).status == 2
        assert "no delivery" in check("consumer", *of, "--last-delivery-critical", "1h").out
        assert "pins no clients" in check("consumer", *of, "--pinned").out
        assert check("message", *on, "--content", "^hel+o$", "--age-critical", "1h").status == 0
        assert check("message", *on, "--content", "x").status == 2
        assert check("message", *on, "--subject", "none").status == 2
        assert check("message", *on, "--content", "(").status == 3
        assert check("message", *on, "--body-timestamp").status == 2
        gone = check("stream", "--stream", "gone")
        assert (gone.status, "stream not found" in gone.out) == (2, True)
        assert check("stream").status == 2  # wrong usage


def test_the_account_a_bucket_a_service_are_checked(
    check: Run, peer: ServerProcess, unique: str
) -> None:
    assert check("jetstream").status == 0
    assert check("js", "--format", "text").out.startswith("JetStream: OK\n")
    with connect(peer.url) as client:
        bucket = client.jetstream().create_key_value(KeyValueConfig(bucket=unique))
        bucket.put("a", b"1")
        on = ("--bucket", unique)
        assert check("kv", *on, "--key", "a", "--values-critical", 5).status == 0
        assert check("kv", *on, "--values-warn", 1).status == 1
        assert check("kv", *on, "--key", "b").status == 2
        assert check("kv", "--bucket", "gone").status == 2
    nobody = check("request", "--subject", unique)
    assert nobody.status == 2
    assert check("request", "--subject", "x", "-H", "nothing").status == 3
    asked = ("request", "--subject", "$JS.API.INFO")
    assert check(*asked, "--match-payload", '"streams"').status == 0
    assert check(*asked, "--match-payload", "nonsense").status == 2
    assert check(*asked, "--match-header", "A:b").status == 2
    assert check(*asked, "--response-critical", "1ns").status == 2


def series(text: str) -> set[str]:
    """The series of a page for Prometheus: names and items, without values and the status."""
    found = (line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#"))
    return {
        re.sub(r',status="[A-Z]+"', "", each).removeprefix("nats_server_check_") for each in found
    }


def test_prometheus_gets_the_series_of_the_nats_command(
    check: Run, peer: ServerProcess, unique: str
) -> None:
    with connect(peer.url) as client:
        jetstream = client.jetstream()
        jetstream.create_stream(StreamConfig(name=unique))
        config = StreamConfig(name=f"{unique}-2", sources=[StreamSource(name=unique)])
        jetstream.create_stream(config)
        jetstream.create_consumer(unique, ConsumerConfig(durable_name="C", ack_policy="explicit"))
        jetstream.create_key_value(KeyValueConfig(bucket=unique))
        jetstream.publish(unique, b"hello")

    def found(*words: object) -> set[str]:
        return series(check(*words, "--format", "prometheus").out)

    def named(item: str, suite: str, *names: str) -> set[str]:
        return {f'{suite}_{name}{{item="{item}"}}' for name in (*names, "status_code")}

    times = ("connect_time", "rtt", "request_time")
    assert found("connection") == named("Connection", "connections", *times)
    usage = [f"{n}{e}" for n in ("memory", "storage", "streams", "consumers") for e in ("", "_pct")]
    kinds = ("ok", "no_leader", "missing_replicas", "lagged", "not_seen", "fail")
    copies = [f"replicas_{each}" for each in kinds]
    assert found("jetstream") == named("JetStream", "jetstream", *usage, *copies)
    on = ("--stream", unique)
    assert found("message", *on) == named("Stream Message", "message", "age", "size")
    state = ("messages", "subjects", "sources")
    assert found("stream", *on) == named(unique, "stream", *state)
    lagging = ("sources_lagged", "sources_inactive")
    sourced = found("stream", "--stream", f"{unique}-2", "--lag-critical", 1)
    assert sourced == named(f"{unique}-2", "stream", *state, *lagging)
    counts = ("ack_pending", "pull_waiting", "pending", "redelivered")
    assert found("consumer", *on, "--consumer", "C") == named(f"{unique}_C", "consumer", *counts)
    assert found("kv", "--bucket", unique) == named(unique, "kv", "values", "bytes", "replicas")
    assert found("request", "--subject", unique) == named(unique, "request", "time")


CONFIG = """
listen: 127.0.0.1:@port
server_name: bertha
jetstream { store_dir: "%s" }
accounts {
    $SYS { users: [ { user: admin, password: secret } ] }
    A { jetstream: enabled, users: [ { user: anna, password: secret } ] }
}
no_auth_user: anna
"""


@pytest.mark.parametrize("kind", available_servers())
def test_a_server_is_checked_over_the_system_account(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with configured(kind, CONFIG % tmp_path) as running:
        monkeypatch.setenv("NATS_URL", f"nats://127.0.0.1:{running.ports['port']}")
        on = ("server", "check", "server", "--name")
        soon = ("--timeout", "1s", *on)
        assert "needs the system account" in cli(*soon, "bertha").out
        monkeypatch.setenv("NATS_USER", "admin")
        monkeypatch.setenv("NATS_PASSWORD", "secret")
        fine = cli(*on, "bertha", "--js-required", "--mem-warn", 1 << 40, "--mem-critical", 1 << 41)
        assert fine.status == 0, fine
        assert fine.out.startswith("OK bertha OK:JetStream is on")
        assert re.search(r"\| uptime=\S+ cpu=\S+ mem=\d+;\d+;\d+ connections=", fine.out)
        assert cli(*on, "bertha", "--tls-required").status == 2
        assert cli(*on, "bertha", "--uptime-critical", "24h").status == 2
        assert cli(*on, "bertha", "--conn-warn", 3, "--conn-critical", 2).status == 2
        assert "no certificate" in cli(*on, "bertha", "--tls-cert-warn", "1d").out
        assert cli(*soon, "gone").status == 2
        single = cli("server", "check", "meta", "--expect", 3, "--lag-critical", 1)
        assert (single.status, "not clustered" in single.out) == (2, True)


@pytest.mark.parametrize("kind", available_servers())
def test_a_certificate_is_checked(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    files = authority.server(days=10)
    tls = f'tls {{ cert_file: "{files.cert_file}", key_file: "{files.key_file}" }}\n'
    with configured(kind, CONFIG % (tmp_path / "store") + tls) as running:
        monkeypatch.setenv("NATS_URL", f"nats://admin:secret@localhost:{running.ports['port']}")
        monkeypatch.setenv("NATS_CA", authority.ca_file)
        on = ("server", "check", "server", "--name", "bertha", "--tls-required")
        assert cli(*on, "--tls-cert-warn", "5d", "--tls-cert-crit", "1d").status == 0
        assert cli(*on, "--tls-cert-warn", "15d", "--tls-cert-crit", "1d").status == 1
        late = cli(*on, "--tls-cert-warn", "15d", "--tls-cert-crit", "12d")
        assert (late.status, "expires in" in late.out) == (2, True)


def test_a_credentials_file_is_checked(cli: Run, tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 4_102_444_800}).encode()).decode()
    seed = "SUACH75SWCM5D2JMJM6EKLR2WDARVGZT4QC6LX3AGHSWOMVAKERABBBRWM"
    text = (
        f"-----BEGIN NATS USER JWT-----\nx.{claims.rstrip('=')}.y\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
    )
    file = tmp_path / "user.creds"
    file.write_text(text)
    on = ("server", "check", "credential", "--credential")
    assert cli(*on, file).status == 0
    page = cli(*on, file, "--format", "prometheus").out
    assert series(page) == {
        'credential_expiry{item="Credential"}',
        'credential_status_code{item="Credential"}',
    }
    assert cli(*on, file, "--validity-critical", "365000d").status == 2
    assert cli(*on, tmp_path / "none").status == 2
    file.write_text(text.replace(claims.rstrip("="), "nonsense"))
    assert "no readable JWT" in cli(*on, file).out
