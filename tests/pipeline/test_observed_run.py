"""One run of a target that everybody watches: changes, live numbers, alerts, lineage, all on Spark."""

import contextlib
import json

import pytest

from pelton.cli.__main__ import main
from pelton.client.base.models import StreamConfig
from pelton.client.sync import connect
from pelton.pipeline import load
from pelton.pipeline.running import command
from tests.peers import available_servers, start_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SHOP = """\
pipeline: shop
defaults: {servers: "${file:address}", trigger: 0s}
sources:
  raw: {format: jetstream, stream: ORDERS}
steps:
  good:
    from: raw
    columns: {id: "try_cast(cast(data as string) as long)"}
    expect: {has_id: id is not null, small: id < 1000}
sinks:
  table: {from: good, select: [id, seq], format: jetstream_delta, path: "tables/${PELTON_TARGET}"}
  bad: {from: good.rejected, format: jetstream_delta, path: bad}
alerts: {rejected: 10%, window: 1h, subject: "alerts.{name}.{alert}"}
lineage: {file: events.jsonl}
targets:
  dev: {default: true}
  prod: {alerts: }
"""


@pytest.fixture
def js(tmp_path):
    server = start_server(available_servers()[0])
    (tmp_path / "address").write_text(f"{server.url}\n")
    with connect(server.url) as client:
        js = client.jetstream()
        js.create_stream(StreamConfig(name="ORDERS", subjects=["orders.>"]))
        js.create_stream(StreamConfig(name="ALERTS", subjects=["alerts.>"]))
        yield js
    server.remove()


def test_a_run_is_seen_from_all_sides(tmp_path, js, spark, monkeypatch, capsys):
    monkeypatch.setattr(command, "own_session", lambda job: contextlib.nullcontext(spark))
    for data in [*map(str, range(80)), *["x"] * 15, *["5000"] * 5]:
        js.publish("orders.x", data.encode())
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP)
    assert main(["pipeline", "plan", str(file)]) == 2
    capsys.readouterr()
    assert main(["pipeline", "run", "--once", str(file)]) == 0
    told = capsys.readouterr().out
    assert "alert: query raw: 20% of the rows rejected in 3600s, limit 10%" in told
    assert "change:" not in told
    alert = json.loads(js.get_message("ALERTS", 1).data)
    assert (alert["pipeline"], alert["status"], alert["value"]) == ("shop-dev", "firing", 20.0)
    assert js.stream_info("ALERTS").state.messages == 1
    assert js.get_message("ALERTS", 1).subject == "alerts.shop-dev-raw.rejected"

    assert main(["pipeline", "watch", "--once", "--json", str(file)]) == 0
    [query] = json.loads(capsys.readouterr().out)["queries"]
    assert (query["state"], query["rows"], query["lag"]) == ("ended", 100, 0)
    assert query["rejected"] == {"bad": {"has_id": 15, "small": 20}}

    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(each["job"]["name"], each["eventType"]) for each in events] == [
        ("shop-dev", "START"),
        ("shop-dev.raw", "START"),
        ("shop-dev.raw", "COMPLETE"),
        ("shop-dev", "COMPLETE"),
    ]
    outputs = {each["name"]: each for each in events[2]["outputs"]}
    assert list(outputs) == [str(tmp_path / "tables/dev"), str(tmp_path / "bad")]
    table = outputs[str(tmp_path / "tables/dev")]
    assert table["outputFacets"]["outputStatistics"]["rowCount"] == 80
    assert [each["name"] for each in table["facets"]["schema"]["fields"]] == ["id", "seq"]

    assert main(["pipeline", "plan", str(file)]) == 0
    file.write_text(SHOP.replace("id < 1000", "id < 100"))
    capsys.readouterr()
    assert main(["pipeline", "run", "--once", "--json", str(file)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    [change] = [each for each in lines if each["event"] == "change"]
    assert (change["part"], list(change["keys"])) == ("steps.good", ["expect"])
    # The alert of the first run ends, as no row came in this one.
    [end] = [each for each in lines if each["event"] == "alert"]
    assert (end["alert"], end["status"]) == ("rejected", "resolved")

    prod = load(file, target="prod")
    assert prod.alerts is None
    assert prod.state == tmp_path / "state" / "shop-prod"
    assert prod.sinks["table"].place == str(tmp_path / "tables/prod")
