"""/metrics, read with Prometheus's own parser, and held against what it is documented as and used for."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pelton.server.monitor.metrics import METRICS, PREFIX

from .test_monitor import House, with_streams


def scrape(house, **query):
    found = house.get("/metrics", **query)
    assert found.kind.startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(found.body.decode())}


def value(families, name, **labels):
    samples = [
        sample.value
        for sample in families[PREFIX + name].samples
        if labels.items() <= sample.labels.items()
    ]
    assert len(samples) == 1, (name, samples)
    return samples[0]


def test_every_metric_is_there_with_its_labels(tmp_path):
    house, _ = with_streams(tmp_path)
    families = scrape(house)
    assert set(families) == {PREFIX + kind.name for kind in METRICS}
    for kind in METRICS:
        family = families[PREFIX + kind.name]
        assert family.type == ("counter" if kind.counter else "gauge")
        assert family.documentation == kind.text
        for sample in family.samples:
            assert set(sample.labels) == set(kind.labels)


def test_the_numbers_are_those_of_the_server(tmp_path):
    house, alice = with_streams(tmp_path)
    families = scrape(house)
    assert value(families, "connections") == 1
    assert value(families, "received_messages") == alice.in_msgs
    assert value(families, "account_received_messages", account="$G") == alice.in_msgs
    assert value(families, "account_connections", account="$SYS") == 0
    assert value(families, "jetstream_enabled") == 1
    assert value(families, "jetstream_streams", account="$G") == 2
    assert value(families, "jetstream_api_requests", account="$G") == 3
    stream = {"account": "$G", "stream": "S"}
    assert value(families, "stream_messages", **stream) == 3
    assert value(families, "stream_max_bytes", **stream) == 9000
    assert value(families, "stream_write_error", **stream) == 0
    consumer = {**stream, "consumer": "c"}
    assert value(families, "consumer_pending", **consumer) == 2
    assert value(families, "consumer_ack_pending", **consumer) == 1
    assert value(families, "consumer_lag", **consumer) == 3
    assert value(families, "consumer_delivered_sequence", **consumer) == 1
    assert value(families, "commits") >= 3
    assert value(families, "fsyncs") >= 3
    assert value(families, "resident_memory_bytes") > 1_000_000


def test_series_of_streams_and_consumers_are_bounded(tmp_path):
    house, _ = with_streams(tmp_path)
    families = scrape(house, streams="1", consumers="0")
    assert value(families, "stream_messages", stream="S") == 3
    assert [s.labels["stream"] for s in families["pelton_stream_messages"].samples] == ["S"]
    assert not families["pelton_consumer_pending"].samples
    assert value(families, "jetstream_streams_hidden") == 1
    assert value(families, "jetstream_consumers_hidden") == 1


def test_without_jetstream():
    families = scrape(House())
    assert value(families, "jetstream_enabled") == 0
    assert not families["pelton_jetstream_streams"].samples


# -- what is made of the metrics elsewhere

ROOT = Path(__file__).parents[2]
WORD = re.compile(r"pelton_[a-z_]+")


def exported():
    """Every metric by the name that Prometheus knows, with its labels."""
    return {
        PREFIX + kind.name + ("_total" if kind.counter else ""): set(kind.labels)
        for kind in METRICS
    }


def expressions():
    dashboard = json.loads((ROOT / "deploy/grafana/pelton.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"], target["legendFormat"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"], ""
    rules = (ROOT / "deploy/prometheus/pelton.rules.yml").read_text()
    for found in re.finditer(r"expr: (.+)\n(?:.*\n)*?\s+summary: (.+)", rules):
        yield found[1], found[2]


def test_dashboard_and_rules_use_metrics_that_there_are():
    known = exported()
    found = list(expressions())
    assert len(found) > 40
    for expression, shown in found:
        used = set(WORD.findall(expression))
        assert used or 'up{job="pelton"}' in expression, expression
        assert used <= set(known), expression
        labels = {"instance", "job"}.union(*(known[name] for name in used))
        asked = re.findall(r"([a-z]+)=~?\"", expression)
        asked += re.findall(r"{{\s*(?:\$labels\.)?([a-z]+)\s*}}", shown)
        assert set(asked) <= labels, (expression, shown)
        assert expression.count("(") == expression.count(")")
