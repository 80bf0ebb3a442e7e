"""The reference page of pipelines names every key there is, and nothing else."""

import re
from pathlib import Path

import pytest
import yaml

from pelton.pipeline.description import keys
from pelton.pipeline.description.options import PATHS
from pelton.pipeline.description.reading import read
from pelton.pipeline.running.rejected import REASONS

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "pipeline.md").read_text()


def table(heading):
    part = PAGE.partition(f"\n{heading}\n")[2]
    rows = re.search(r"(?:^\|.*\n)+", part, re.MULTILINE)
    assert rows is not None, heading
    return re.findall(r"^\| `([^|]+)` \|", rows[0], re.MULTILINE)


@pytest.mark.parametrize(
    ("heading", "rows"),
    [
        ("## Top", keys.TOP),
        ("## Sources", keys.SOURCE),
        ("## Steps", keys.STEP),
        ("## Payloads", keys.PAYLOADS),
        ("## Sinks", keys.SINK),
        ("With `register`:", keys.REGISTER),
        ("## Tests", keys.CASE),
        ("Rows are a list, or:", keys.GIVEN),
        ("## Alerts", keys.ALERTS),
        ("## Lineage", keys.LINEAGE),
        ("With `upsert`:", (*keys.UPSERT, keys.Key("storage.*", ""), keys.Key("catalog.*", ""))),
    ],
)
def test_every_key_is_in_its_table(heading, rows):
    assert table(heading) == keys.names(rows)


def test_what_else_the_page_says():
    for row in (*keys.DEFAULTS, *keys.SPARK, *keys.METRICS):
        assert f"`{row.name}`" in PAGE, row.name
    assert f"`{REASONS}`" in PAGE
    sentence = PAGE.partition("- `path`")[2].partition("\n")[0].lower()
    assert all(f"`{name}`" in sentence for name in PATHS - {"path"})


def test_the_files_of_the_how_to_are_well():
    how_to = (Path(__file__).parents[2] / "docs" / "howto" / "build-a-pipeline.md").read_text()
    first, throws, _, more, _ = (
        yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", how_to, re.DOTALL)
    )
    assert read(yaml.safe_dump(first), Path("/x/orders.yaml"), environment={}).sinks
    for part in ("sources", "steps", "sinks"):
        first[part].update(throws.get(part, {}))
        first[part].update(more[part])
    for name in ("named", "all"):
        first["sinks"][f"{name}_rows"] = {"from": name, "format": "console"}
    pipeline = read(yaml.safe_dump(first), Path("/x/orders.yaml"), environment={})
    assert pipeline.sinks["hours"].own
