"""``pelton audit``: archives, the checks over them, and gathering from every server there is."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pelton.cli.audit.archive import (
    SERVER_KINDS,
    STREAM_KIND,
    UNCLUSTERED,
    ArchiveError,
    Reader,
    Writer,
)
from pelton.cli.audit.catalog import checks
from pelton.cli.audit.check import Check, run
from pelton.sync import connect
from tests.cli.test_server_reports import CONFIG
from tests.peers import available_servers
from tests.server.configured import configured

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.conftest import Ran

    Run = Callable[..., Ran]

WHEN = (2026, 1, 2, 3, 4, 6)
MONITOR = "io.nats.monitor."


class Making:
    """An archive that a test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = Writer(path, WHEN)

    def page(self, kind: str, data: Any, server: str = "a", cluster: str = "C") -> None:
        tags = {"cluster": cluster, "server": server, "artifact_type": kind}
        self._writer.add(tags, {"server": {"name": server, "id": server}, "data": data})

    def account(self, data: Any) -> None:
        tags = {"cluster": "C", "server": "a", "account": "A", "artifact_type": "account_info"}
        self._writer.add(tags, {"server": {}, "data": data})

    def stream(self, detail: Any, server: str = "a") -> None:
        tags = {"cluster": "C", "server": server, "account": "A", "stream": "S"}
        self._writer.add({**tags, "artifact_type": STREAM_KIND}, {"name": "S", **detail})

    def done(self) -> Reader:
        self._writer.close({"capture_timestamp": "2026-01-02T03:04:06Z"}, "")
        return Reader(self.path)


@pytest.fixture
def making(tmp_path: Path) -> Making:
    return Making(tmp_path / "a.zip")


def check(code: str) -> Check:
    return next(each for each in checks() if each.code == code)


# -- archives

_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\\\0"), min_size=1, max_size=6)


@given(st.lists(st.tuples(_NAMES, _NAMES, st.sampled_from([*SERVER_KINDS.values()])), max_size=8))
@settings(max_examples=40, deadline=None)
def test_what_is_written_is_read(pages: list[tuple[str, str, str]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.zip"
        writer = Writer(path, WHEN)
        expected = []
        for index, (cluster, server, kind) in enumerate(pages):
            tags = {"cluster": cluster, "server": server, "artifact_type": kind}
            try:
                writer.add(tags, {"number": index})
            except ArchiveError:
                assert {cluster, server} & {".", ".."}
                continue
            expected.append((tags, {"number": index}))
        assert not path.exists()
        writer.close({"user_name": "me"}, "log")
        reader = Reader(path)
        for tags, content in expected:
            assert (tags, content) in list(reader.pages(**tags))
        assert len(list(reader.pages())) == len(expected) + 1
        assert reader.metadata() == {"user_name": "me"}
        assert reader.servers() == sorted({(t["cluster"], t["server"]) for t, _ in expected})


def test_the_form_is_the_one_of_others(making: Making) -> None:
    making.page("variables", {"version": "1"})
    making.page("variables", {"version": "2"})
    making.done().close()
    with zipfile.ZipFile(making.path) as archive:
        manifest = json.loads(archive.read("capture/misc/manifest.json"))
        first = "capture/clusters/C/a/variables/0001.json"
        assert manifest[first] == [
            {"Name": "cluster", "Value": "C"},
            {"Name": "server", "Value": "a"},
            {"Name": "artifact_type", "Value": "variables"},
        ]
        assert set(archive.namelist()) == {*manifest, "capture/misc/manifest.json"}
        assert archive.getinfo(first).date_time == WHEN
        assert first.replace("0001", "0002") in manifest


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x05\x06" + bytes(18)])
def test_other_files_are_refused(cli: Run, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(content)
    with pytest.raises(ArchiveError):
        Reader(path)
    for words in (("audit", "analyze", path), ("server", "report", "cpu", "--archive", path)):
        ran = cli(*words)
        assert (ran.status, ran.out) == (1, "")
        assert "is no audit archive" in ran.err


def test_a_name_with_a_slash_is_refused(making: Making) -> None:
    with pytest.raises(ArchiveError):
        making.page("variables", {}, server="a/b")


# -- checks


def test_checks_have_the_codes_of_others(cli: Run) -> None:
    found = cli("audit", "checks", "--json").json
    codes = [each["code"] for each in found]
    assert codes == [
        "ACCOUNTS_001",
        *(f"CLUSTER_00{number}" for number in range(1, 5)),
        *(f"JETSTREAM_00{number}" for number in range(1, 6)),
        "LEAF_001",
        "META_001",
        "META_002",
        *(f"SERVER_00{number}" for number in range(1, 9)),
    ]
    assert cli("audit", "ls").out.count("\n") == len(codes) + 1


def test_an_empty_archive_skips_all_checks(making: Making) -> None:
    reader = making.done()
    assert {run(each, reader, {}).outcome for each in checks()} == {"SKIP"}


VARZ = {"version": "2.15.1", "cores": 2, "cpu": 3.0, "mem": 100, "auth_required": True,
        "now": "2026-01-02T03:04:06Z"}  # fmt: skip
SERVER_CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("SERVER_001", "health", {"status": "ok", "status_code": 200}, "PASS"),
    ("SERVER_001", "health", {"status": "unavailable", "status_code": 503}, "WARN"),
    ("SERVER_002", "variables", {}, "PASS"),
    ("SERVER_003", "variables", {"cpu": 179.0}, "PASS"),
    ("SERVER_003", "variables", {"cpu": 181.0}, "FAIL"),
    ("SERVER_003", "variables", {"cores": 0}, "SKIP"),
    ("SERVER_004", "variables", {}, "PASS"),
    ("SERVER_004", "variables", {"slow_consumers": 1}, "WARN"),
    ("SERVER_005", "jetstream_info", {"config": {"max_memory": 100}, "memory": 90}, "PASS"),
    ("SERVER_005", "jetstream_info", {"config": {"max_memory": 100}, "memory": 91}, "WARN"),
    ("SERVER_005", "jetstream_info", {"config": {"max_storage": 100}, "storage": 91}, "WARN"),
    ("SERVER_005", "jetstream_info", {"config": {"max_storage": 0}, "storage": 91}, "PASS"),
    ("SERVER_006", "jetstream_info", {"config": {"domain": "HUB"}}, "PASS"),
    ("SERVER_006", "jetstream_info", {"config": {"domain": "A HUB"}}, "WARN"),
    ("SERVER_007", "variables", {}, "PASS"),
    ("SERVER_007", "variables", {"auth_required": False}, "WARN"),
    ("SERVER_008", "variables", {}, "SKIP"),
    ("SERVER_008", "variables", {"tls_cert_not_after": "2026-03-02T00:00:00Z"}, "PASS"),
    ("SERVER_008", "variables", {"tls_cert_not_after": "2026-01-20T00:00:00Z"}, "WARN"),
    ("SERVER_008", "variables", {"leaf": {"tls_cert_not_after": "2026-01-05T00:00:00Z"}}, "FAIL"),
    ("SERVER_008", "variables", {"tls_cert_not_after": "0001-01-01T00:00:00Z"}, "SKIP"),
    ("CLUSTER_003", "jetstream_info", {"ha_assets": 1000}, "PASS"),
    ("CLUSTER_003", "jetstream_info", {"ha_assets": 1001}, "WARN"),
    ("LEAF_001", "leafs", {"leafs": [{"name": "edge"}]}, "PASS"),
    ("LEAF_001", "leafs", {"leafs": [{"name": "an edge"}]}, "WARN"),
    ("META_001", "jetstream_info", {"meta_cluster": {"replicas": [{"name": "b"}]}}, "PASS"),
    ("META_001", "jetstream_info",
     {"meta_cluster": {"replicas": [{"name": "b", "offline": True}]}}, "FAIL"),
    ("META_002", "jetstream_info", {"meta_cluster": {"leader": "a"}}, "PASS"),
    ("META_002", "jetstream_info", {"meta_cluster": {}}, "SKIP"),
    ("META_002", "jetstream_info", {"meta_cluster": {"name": "C"}}, "FAIL"),
    ("META_002", "jetstream_info", {"disabled": True, "meta_cluster": {"name": "C"}}, "SKIP"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "kind", "data", "outcome"), SERVER_CASES)
def test_servers_are_checked(
    making: Making, code: str, kind: str, data: dict[str, Any], outcome: str
) -> None:
    making.page(kind, {**(VARZ if kind == "variables" else {}), **data})
    result = run(check(code), making.done(), {})
    assert (result.outcome, bool(result.examples)) == (outcome, outcome in ("WARN", "FAIL"))


STREAM_CASES: list[tuple[str, dict[str, Any], str]] = [
    ("JETSTREAM_002", {"state": {"num_subjects": 10**6}}, "PASS"),
    ("JETSTREAM_002", {"state": {"num_subjects": 10**6 + 1}}, "WARN"),
    ("JETSTREAM_003", {"state": {"messages": 90}, "config": {"max_msgs": 100}}, "PASS"),
    ("JETSTREAM_003", {"state": {"messages": 91}, "config": {"max_msgs": 100}}, "WARN"),
    ("JETSTREAM_003", {"state": {"bytes": 91}, "config": {"max_bytes": 100}}, "WARN"),
    ("JETSTREAM_003", {"state": {"bytes": 91}, "config": {"max_bytes": -1}}, "PASS"),
    ("JETSTREAM_004", {"config": {"metadata": {MONITOR + "msgs-critical": "5"}}}, "SKIP"),
    ("JETSTREAM_004", {"config": {"metadata": {MONITOR + "enabled": "false"}}}, "SKIP"),
]


@pytest.mark.parametrize(("code", "detail", "outcome"), STREAM_CASES)
def test_streams_are_checked(
    making: Making, code: str, detail: dict[str, Any], outcome: str
) -> None:
    making.stream(detail)
    assert run(check(code), making.done(), {}).outcome == outcome


def test_copies_and_servers_are_compared(making: Making) -> None:
    for server, last, version, memory in (
        ("a", 1000, "1", 10),
        ("b", 800, "2", 10),
        ("c", 950, "1", 90),
    ):
        making.stream({"state": {"last_seq": last}}, server)
        making.page("variables", {**VARZ, "version": version, "mem": memory}, server)
        making.page("jetstream_info", {"meta_cluster": {"leader": server}}, server)
        outbound = {"X": {"configured": server != "b"}}
        making.page("gateways", {"outbound_gateways": outbound}, server)
    making.page("variables", {**VARZ, "mem": 10**9}, "d", UNCLUSTERED)
    reader = making.done()
    results = {each.code: run(each, reader, {}) for each in checks()}
    (lagging,) = results["JETSTREAM_001"].examples
    assert "b is at sequence 800, a at 1000" in lagging
    assert [results[code].outcome for code in ("SERVER_002", "META_002", "CLUSTER_002")] == [
        "FAIL"
    ] * 3
    (outlier,) = results["CLUSTER_001"].examples
    assert outlier.startswith("c uses 90 B")
    assert run(check("JETSTREAM_001"), reader, {"last_seq": 30}).outcome == "PASS"
    assert run(check("CLUSTER_001"), reader, {"memory": 3}).outcome == "PASS"


@pytest.mark.parametrize(("used", "outcome"), [(90, "PASS"), (91, "WARN"), (101, "FAIL")])
def test_accounts_are_checked(making: Making, used: int, outcome: str) -> None:
    limits = {"conn": 100, "leaf": -1, "subs": 0}
    making.account({"client_connections": used, "decoded_jwt": {"nats": {"limits": limits}}})
    assert run(check("ACCOUNTS_001"), making.done(), {}).outcome == outcome


def test_a_page_that_can_not_be_read_skips_a_check(making: Making, cli: Run) -> None:
    making.page("variables", ["not", "an", "object"])
    making.page("health", {"status": "ok"})
    making.done().close()
    report = cli("audit", "analyze", making.path, "--json").json
    found = {each["check"]["code"]: each for each in report["results"]}
    assert found["SERVER_003"]["outcome_string"] == "SKIP"
    assert found["SERVER_003"]["examples"]["error"]
    assert found["SERVER_001"]["outcome_string"] == "PASS"


# -- the commands


def test_reports_are_saved_loaded_and_cut_short(making: Making, cli: Run, tmp_path: Path) -> None:
    for number in range(8):
        making.page("variables", {**VARZ, "slow_consumers": 1}, f"n{number}")
    making.done().close()
    saved = tmp_path / "report.json"
    ran = cli("audit", "analyze", making.path, "--max-examples", "3", "--save", saved)
    assert ran.status == 0
    assert ran.out.count("clients read too slowly") == 3
    assert "and 5 more" in ran.out
    assert "[WARN] SERVER_004" in ran.out
    assert cli("audit", "analyze", making.path, "--save", saved).status == 1
    loaded = cli("audit", "analyze", "--load", saved, "--max-examples", "0", "--markdown")
    assert loaded.out.count("\n- n") == 8
    assert cli("audit", "analyze").status == 2
    assert cli("audit", "analyze", "--load", making.path).status == 1
    skipped = cli("audit", "analyze", making.path, "--skip", "server", "--skip", "meta_001", "-j")
    assert {each["outcome_string"] for each in skipped.json["results"]} == {"SKIP", "PASS"}
    assert cli("audit", "analyze", making.path, "--skip", "NONE").status == 2
    failing = cli("audit", "analyze", making.path, "--server_003_cpu", "1")
    assert failing.status == 1
    assert "[FAIL] SERVER_003" in failing.out


@pytest.mark.parametrize("kind", available_servers())
def test_a_server_is_gathered_and_checked(
    kind: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "archive.zip"
    with configured(kind, CONFIG % (tmp_path / "store")) as running:
        address = f"127.0.0.1:{running.ports['port']}"
        with connect(f"nats://{address}") as client:
            metadata = {MONITOR + "enabled": "true", MONITOR + "msgs-critical": "5"}
            config = {"name": "S", "subjects": ["s"], "metadata": metadata, "max_msgs": 2}
            client.request("$JS.API.STREAM.CREATE.S", json.dumps(config).encode())
            metadata = {MONITOR + "enabled": "true", MONITOR + "unprocessed-critical": "2"}
            config = {"durable_name": "c", "ack_policy": "explicit", "metadata": metadata}
            body = {"stream_name": "S", "config": config}
            client.request("$JS.API.CONSUMER.DURABLE.CREATE.S.c", json.dumps(body).encode())
            for _ in range(2):
                client.jetstream().publish("s", b"")
            monkeypatch.setenv("NATS_URL", f"nats://admin:secret@{address}")
            done = cli("audit", "gather", "--output", path, "--no-server-profiles", "--json").json
            assert (done["servers"], done["problems"]) == (1, [])
            assert done["pages"] >= 20
        assert cli("audit", "gather", "-o", path).status == 1
        assert cli("audit", "cap", "-o", path, "--force", "--no-account-endpoints").status == 0
        assert path.stat().st_mode & 0o077 == 0
        profiles = [tags["profile_name"] for tags, _ in Reader(path).profiles()]
        assert "heap" in profiles
        (tmp_path / "profiles").mkdir()
        words = ("server", "request", "profile", "heap", tmp_path / "profiles", "--archive", path)
        assert cli(*words).status == 0
        assert len(list((tmp_path / "profiles").iterdir())) == 1
        assert cli(*words, "--level", "9").status == 1
        next((tmp_path / "profiles").iterdir()).unlink()
        (tmp_path / "profiles").rmdir()
        words = ("--timeout", "1s", "-s", f"nats://{address}", "audit", "gather", "-o")
        assert cli(*words, tmp_path / "other").status == 1
        assert sorted(each.name for each in tmp_path.iterdir()) == ["archive.zip", "store"]
        assert cli("audit", "gather", "-o", path, "-f", "--no-server-profiles").status == 0
    report = cli("audit", "analyze", path, "--json")
    assert report.status == 1
    outcomes = {each["check"]["code"]: each["outcome_string"] for each in report.json["results"]}
    assert outcomes["JETSTREAM_003"] == "WARN"
    assert outcomes["JETSTREAM_004"] == outcomes["JETSTREAM_005"] == "FAIL"
    assert outcomes["SERVER_001"] == outcomes["JETSTREAM_001"] == "PASS"
    assert report.json["metadata"]["connected_server_name"] == "bertha"
    # the commands about servers read it, too
    from_file = ("--archive", path, "--json")
    assert cli("server", "report", "jetstream", *from_file).json[0]["streams"] == 1
    assert "$SYS" in [
        each["account"] for each in cli("server", "report", "accounts", *from_file).json
    ]
    (varz,) = cli("server", "request", "variables", *from_file).json
    assert varz["data"]["server_name"] == "bertha"
    assert cli("server", "account", "info", "A", *from_file).json["account_name"] == "A"
    assert cli("server", "report", "cpu", "--watch", "1", *from_file).status == 2
    assert cli("server", "ls", *from_file).json[0]["server"]["name"] == "bertha"
    assert cli("server", "info", *from_file).json["data"]["server_name"] == "bertha"
    assert cli("server", "info", "other", *from_file).status == 1
    assert cli("server", "request", "varz", "--name", "other", *from_file).json == []
