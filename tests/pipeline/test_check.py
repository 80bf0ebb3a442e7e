"""What a look at the file finds, alone and with Spark: formats, places that are the same, defaults, options."""

import contextlib
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from pelton.cli.__main__ import main
from pelton.pipeline import load
from pelton.pipeline.description.example import EXAMPLE
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.description.reading import read
from pelton.pipeline.running import preview
from pelton.pipeline.running.analysis import analyse
from pelton.pipeline.running.queries import Memory, plan

FILE = Path("/somewhere/shop.yaml")
SHOP = """\
pipeline: shop
sources:
  raw: {format: jetstream, stream: ORDERS}
sinks:
  one: {from: raw, format: jetstream_delta, path: tables/one}
"""


def problems(text):
    with pytest.raises(PipelineError) as raised:
        read(text, FILE, environment={})
    return raised.value.lines()


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("tables/one", "is written by sinks.one already"),
        ("./tables/../tables//one/", "is written by sinks.one already"),
        ("file:///somewhere/tables/one", "is written by sinks.one already"),
        (
            "/somewhere/tables/one/inner",
            "is inside /somewhere/tables/one, which sinks.one writes",
        ),
    ],
)
@pytest.mark.parametrize("way", ["format: jetstream_delta, path: {}", "upsert: {}, keys: [seq]"])
def test_one_place_in_two_spellings(path, said, way):
    [line] = problems(SHOP + f"  two: {{from: raw, {way.format(path)}}}\n")
    assert line.startswith("/somewhere/shop.yaml:6: sinks.two: ")
    assert said in line


def test_places_beside_each_other_are_two(tmp_path):
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "link").symlink_to(tmp_path / "tables" / "one")
    beside = SHOP + "  two: {from: raw, format: jetstream_delta, path: tables/one_more}\n"
    assert read(beside, tmp_path / "shop.yaml", environment={}).sinks.keys() == {"one", "two"}
    linked = SHOP + "  two: {from: raw, format: jetstream_delta, path: tables/link}\n"
    with pytest.raises(PipelineError, match=r"is written by sinks\.one already"):
        read(linked, tmp_path / "shop.yaml", environment={})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "format: jetstream,",
            "format: jetstrem,",
            "'jetstrem' is not known; did you mean jetstream?",
        ),
        ("format: jetstream,", "format: console,", "format console cannot be read"),
        ("format: jetstream_delta", "format: rate", "format rate cannot be written"),
        ("format: jetstream_delta", "format: parqet", "did you mean parquet?"),
        (
            "format: jetstream_delta, path: tables/one",
            "format: jetstream_iceberg",
            "table is missing",
        ),
        (
            "format: jetstream_delta, path: tables/one",
            "format: jetstream_iceberg, tabel: a.b",
            "unknown option 'tabel'; did you mean table?",
        ),
        (
            "path: tables/one",
            "path: tables/one, mergeShema: true",
            "unknown option 'mergeShema'; did you mean mergeSchema?",
        ),
    ],
)
def test_formats_and_their_options_are_known(old, new, said):
    [line] = problems(SHOP.replace(old, new))
    assert said in line


def test_a_format_that_nobody_here_knows_is_a_warning():
    made = read(SHOP.replace("jetstream_delta", "snowflake"), FILE, environment={})
    [warning] = made.warnings
    assert warning.line == 5
    assert "sinks.one: format snowflake is not known here" in warning.text
    assert read(SHOP, FILE, environment={}).warnings == ()


def test_an_end_before_its_start_is_a_warning():
    ranged = "stream: ORDERS, static: true, startingOffsets: {}, endingOffsets: {}}}"
    for begin, end, told in (
        ("9", "5", True),
        ("5", "9", False),
        ("5", "5", False),
        ("2026-01-02", "2026-01-01", True),
        ("2026-01-01", "2026-01-02", False),
        ("{ORDERS: 9}", "{ORDERS: 5}", True),
        ("earliest", "5", False),
    ):
        text = SHOP + "  two: {from: all, format: jetstream_delta, path: two}\n"
        old = f"  old: {{format: jetstream, {ranged.format(begin, end)}\nsteps:\n"
        text = text.replace("sinks:\n", old + "  all: {from: [raw, old]}\nsinks:\n")
        said = [each.text for each in read(text, FILE, environment={}).warnings]
        assert ["of stream ORDERS nothing is read" in each for each in said] == [True] * told


def test_what_is_wrong_with_defaults_is_told_once():
    wrong = "defaults: {usr: anna, trigger: 1s}\n" + SHOP
    more = "  two: {from: raw, format: jetstream, subject: a}\n"
    assert problems(wrong + more) == [
        "/somewhere/shop.yaml:1: defaults: unknown key 'usr'; did you mean user?"
    ]


FAULTY = """\
pipeline: shop
sources:
  raw: {format: jetstream, stream: ORDERS}
  words: {format: jetstream_kv, bucket: words, static: true}
  files: {format: json, path: /data/in, schema: "id long, , name string", static: true}
  gone: {format: jetstream_delta, path: /nowhere, static: true}
steps:
  filed: {from: [raw, files], sql: select * from raw join files using (seq)}
  joined: {from: [raw, words], sql: select * form raw join words}
  typed:
    from: raw
    where: subjct = 'x'
    columns:
      total: price * 2
      more: length(total) + 1
      made: from_json(cast(data as string), 'id strng')
      low: lowr(subject)
      good: seq + 1
    select:
      - seq
      - struct(nosuch,
        good)
      - upper(good, 1)
    expect: {never: "reached, because the columns are unknown"}
  checked:
    from: raw
    columns: {amount: cast(data as double)}
    expect:
      amount: amount > 0
      number: seq
      some: seq is nott null
  lost: {from: [gone, raw], sql: select a from gone join raw}
  fine: {from: raw, columns: {amount: "cast(cast(data as string) as double)"}, select: [seq, amount]}
  count: {from: fine, sql: select count(*) as n from fine}
  python: {from: fine, python: "check_functions:broken"}
  missing: {from: fine, python: "check_functions:missing"}
sinks:
  one: {from: joined, format: jetstream_delta, path: one}
  file: {from: filed, format: jetstream_delta, path: file}
  two: {from: typed, format: jetstream_delta, path: two}
  left: {from: typed.rejected, format: jetstream_delta, path: left}
  good: {from: checked, format: jetstream_delta, path: good}
  bad: {from: checked.rejected, format: jetstream_delta, path: bad}
  keyed:
    from: fine
    upsert: keyed
    keys: [sek]
    sequence: number
    sums: [x]
  summed: {from: fine, upsert: summed, keys: [seq], sums: [amount, seq]}
  ends: {from: fine, upsert: ends, keys: [seq], deleteWhen: amonut > 1}
  stream: {from: fine, format: jetstream, subject: "a.{nocol}", select: ["'x' as data", datum]}
  sent: {from: fine, format: jetstream, subject: "a.{nocol}"}
  bucket: {from: fine, format: jetstream_kv, bucket: b, select: [seq as key, amount as value]}
  counted: {from: count, format: jetstream_delta, path: counted}
  there: {from: fine, where: seq, format: jetstream_delta, path: there}
  table:
    from: fine
    select:
      [cast(seq as string) as seq, amount]
    format: jetstream_delta
    path: table
  python_rows: {from: python, format: jetstream_delta, path: python}
  missing_rows: {from: missing, format: jetstream_delta, path: missing}
  lost_rows: {from: lost, format: jetstream_delta, path: lost}
"""
FOUND = [
    (5, "sources.files: schema", "Syntax error at or near ',' in: id long"),
    (9, "steps.joined: sql", "Syntax error at or near 'raw'"),
    (12, "steps.typed: where", "Did you mean one of the following? [`subject`"),
    (14, "steps.typed: columns.total", "`price` cannot be resolved"),
    (15, "steps.typed: columns.more", "`total` cannot be resolved"),
    (16, "steps.typed: columns.made", "Syntax error at or near 'strng'"),
    (17, "steps.typed: columns.low", "routine `lowr`; did you mean lower?"),
    (21, "steps.typed: select", "`nosuch` cannot be resolved"),
    (23, "steps.typed: select", "`upper` requires 1 parameters"),
    (27, "steps.checked: columns.amount", 'cannot cast "BINARY" to "DOUBLE"'),
    (30, "steps.checked: expect.number", "BIGINT"),
    (31, "steps.checked: expect.some", "Syntax error at or near 'nott'"),
    (35, "steps.python: python", "`nosuch` cannot be resolved"),
    (47, "sinks.keyed", "keys: there is no column sek; did you mean seq?"),
    (48, "sinks.keyed", "sequence: there is no column number"),
    (49, "sinks.keyed", "sums: there is no column x; there are: seq, amount"),
    (50, "sinks.summed", "seq is bigint; sums are columns"),
    (51, "sinks.ends: deleteWhen", "`amonut` cannot be resolved"),
    (52, "sinks.stream: select", "`datum` cannot be resolved"),
    (53, "sinks.sent", "needs a column data; there are: seq, amount"),
    (54, "sinks.bucket", "column key is bigint, but must be string"),
    (55, "sinks.counted", "keeps state over the stream (Aggregate)"),
    (56, "sinks.there: where", "BIGINT"),
    (59, "sinks.table", "column seq is string, in the table bigint"),
]


def analysed(text, folder, spark, **options):
    path = folder / "shop.yaml"
    path.write_text(text)
    pipeline = load(path)
    queries, problems = plan(pipeline, Memory("shop"), lambda _: -1)
    assert not problems
    return analyse(pipeline, spark, queries, **options)


@pytest.mark.slow
def test_spark_finds_all_faults_at_once(tmp_path, spark):
    """Each with its key's line; a fault hides none in steps and sinks that do not depend on it."""
    (tmp_path / "check_functions.py").write_text(
        "def broken(rows): return rows.select('nosuch')\ndef mising(rows): return rows\n"
    )
    DeltaTable.create(
        tmp_path / "table", pa.schema([("seq", pa.int64()), ("amount", pa.float64())])
    )
    found = analysed(FAULTY, tmp_path, spark)
    for line, (number, label, text) in zip(found.problems, FOUND, strict=True):
        assert line.startswith(f"{tmp_path}/shop.yaml:{number}: {label}"), line
        assert text in line
        assert "SQLSTATE" not in line
    [note] = found.notes
    assert "yaml:6: sources.gone: what reads it is not checked" in note
    assert "there is no table at /nowhere" in note
    assert not list(tmp_path.glob("*/checkpoints"))


@pytest.mark.slow
def test_right_files_have_no_faults(tmp_path, spark):
    how_to = (Path(__file__).parents[2] / "docs" / "howto" / "build-a-pipeline.md").read_text()
    first = re.findall(r"```yaml\n(.*?)```", how_to, re.DOTALL)[0]
    for text in (SHOP, EXAMPLE, first):
        found = analysed(text, tmp_path, spark)
        assert found.problems == []
        assert found.notes == []


@pytest.mark.slow
@pytest.mark.peer
def test_servers_are_asked_for_streams_and_subjects(tmp_path, spark, stream):
    text = f"""\
pipeline: shop
defaults: {{servers: "{stream.url}"}}
sources:
  raw: {{format: jetstream, stream: {stream.name}, subject: elsewhere.a}}
  none: {{format: jetstream, stream: NOWHERE}}
sinks:
  back: {{from: raw, select: [data], format: jetstream, subject: nobody.takes.this}}
  none_rows: {{from: none, format: jetstream_delta, path: none}}
"""
    assert analysed(text, tmp_path, spark).problems == []
    found = analysed(text, tmp_path, spark, ask_servers=True)
    places = [
        "yaml:5: sources.none: there is no stream NOWHERE",
        "yaml:7: sinks.back: no stream on",
    ]
    for line, place in zip(found.problems, places, strict=True):
        assert place in line
    assert f"stream {stream.name} takes no subject elsewhere.a" in found.warnings[0]


@pytest.mark.slow
def test_the_command(tmp_path, spark, monkeypatch, capsys):
    monkeypatch.setattr(preview, "session_of", lambda *_, **__: contextlib.nullcontext(spark))
    path = tmp_path / "shop.yaml"
    path.write_text(SHOP.replace("{from: raw,", "{from: raw, where: sek > 1,"))
    assert main(["pipeline", "check", str(path), "--no-sql"]) == 0
    assert "shop.yaml is valid" in capsys.readouterr().out
    assert main(["pipeline", "check", str(path)]) == 1
    complaint = capsys.readouterr().err
    assert "shop.yaml:5: sinks.one: where: [UNRESOLVED_COLUMN" in complaint
    assert complaint.count("\n") == 1
    path.write_text(SHOP)
    assert main(["pipeline", "check", str(path)]) == 0
    assert "query raw: raw -> one" in capsys.readouterr().out
