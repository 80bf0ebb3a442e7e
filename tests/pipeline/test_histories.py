"""Upserts with histories and with deleted rows that are kept, as a pipeline writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from pelton.client.sync import connect
from pelton.pipeline import load, run
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.running.stages import StepError
from tests.peers import available_servers, start_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.peers import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(300)]

FILE = """
pipeline: shop
sources: {raw: {format: jetstream, stream: IN, servers: "URL", maxOffsetsPerTrigger: 3}}
steps:
  orders:
    from: raw
    json: "id long, at long, amount double, gone boolean"
    select: [value.id, value.at, value.amount, value.gone, seq]
sinks:
  versions: {from: orders, upsert: versions, keys: [id], sequence: at, deleteWhen: gone, history: true}
  newest: {from: orders, upsert: newest, keys: [id], sequence: at, deleteWhen: gone, keepDeleted: 7d}
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    started = start_server(available_servers()[0])
    with connect(started.url) as client:
        client.jetstream().create_stream("IN", subjects=["in"])
    yield started
    started.remove()


def test_versions_and_kept_deletions(server: ServerProcess, spark: Any, tmp_path: Path) -> None:
    sent = [(1, 10, 1.0), (2, 10, 2.0), (1, 30, None), (1, 20, 1.5), (2, 40, 2.5), (3, 5, None)]
    sent += [(3, 4, 3.0), (1, 35, 1.7)]
    with connect(server.url) as client:
        for id_, at, amount in sent:
            order = {"id": id_, "at": at, "amount": amount, "gone": amount is None}
            client.jetstream().publish("in", json.dumps(order).encode())
    path = tmp_path / "shop.yaml"
    path.write_text(FILE.replace("URL", server.url))
    run(load(path), spark, once=True)
    versions = DeltaTable(tmp_path / "versions").to_pyarrow_table().to_pylist()
    assert sorted(
        (row["id"], row["valid_from"], row["valid_to"], row["amount"], row["is_deleted"])
        for row in versions
    ) == [
        (1, 10, 20, 1.0, False),
        (1, 20, 30, 1.5, False),
        (1, 30, 35, None, True),
        (1, 35, None, 1.7, False),
        (2, 10, 40, 2.0, False),
        (2, 40, None, 2.5, False),
        (3, 4, 5, 3.0, False),
        (3, 5, None, None, True),
    ]
    assert {row["is_current"] for row in versions if row["valid_to"] is None} == {True}
    newest = DeltaTable(tmp_path / "newest").to_pyarrow_table().to_pylist()
    assert {row["id"]: row["amount"] for row in newest if row["deleted_at"] is None} == {
        1: 1.7,
        2: 2.5,
    }
    assert [row["id"] for row in newest if row["deleted_at"] is not None] == [3]
    # The table of versions is none without them.
    path.write_text(
        path.read_text().replace("upsert: newest", "upsert: other").replace(", history: true", "")
    )
    with pytest.raises(StepError, match=r"sinks\.versions"):
        run(load(path), spark, once=True)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("history: true, sums: [amount]", "a history has every row; leave out sums"),
        ("history: true, deleteWhen: gone, keepDeleted: 7d", "leave out keepDeleted"),
        ("keepDeleted: 7d", "keepDeleted is for deleteWhen, which is missing"),
        (
            "keepDeleted: 5s, deleteWhen: gone",
            "keepDeleted is '5s', but must be a duration of an hour",
        ),
    ],
)
def test_what_the_file_cannot_say(keys: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "pipeline: shop\nsources: {raw: {format: jetstream, stream: IN}}\n"
        f"sinks: {{table: {{from: raw, upsert: t, keys: [id], {keys}}}}}"
    )
    with pytest.raises(PipelineError) as error:
        load(path)
    assert said in str(error.value)
