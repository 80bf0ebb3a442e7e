"""What a look at the file alone finds: formats, places that are the same, defaults, options."""

import re
from pathlib import Path

import pytest

from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.description.reading import read
from pelton.pipeline.running.syntax import check_syntax, texts_of

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


SQL = """\
pipeline: shop
sources:
  raw: {format: jetstream, stream: ORDERS}
  files: {format: json, path: /data/in, schema: "id long, , name string", static: true}
steps:
  joined: {from: [raw, files], sql: "select * form raw join files using (id)"}
  checked: {from: joined, columns: {total: "price *"}, expect: {some: "id is nott null", good: "id > 0"}}
sinks:
  one: {from: checked, where: "amount >> 3 >", select: ["id", "struct(a, b"], upsert: one, keys: [id]}
  bad: {from: checked.rejected, upsert: bad, keys: [id], deleteWhen: "gone and >"}
"""


@pytest.mark.slow
def test_spark_reads_the_sql_of_a_file():
    said = check_syntax(read(SQL, FILE, environment={}))
    places = [(each.line, " ".join(each.text.split(": ")[:2])) for each in sorted(said)]
    assert places == [
        (4, "sources.files schema"),
        (6, "steps.joined sql"),
        (7, "steps.checked columns"),
        (7, "steps.checked expect"),
        (9, "sinks.one select"),
        (9, "sinks.one where"),
        (10, "sinks.bad deleteWhen"),
    ]
    assert all("[PARSE_SYNTAX_ERROR] Syntax error at or near" in each.text for each in said)
    assert list(texts_of(read(SHOP, FILE, environment={}))) == []


@pytest.mark.slow
def test_the_sql_of_the_how_to_is_right():
    how_to = (Path(__file__).parents[2] / "docs" / "howto" / "build-a-pipeline.md").read_text()
    first = re.findall(r"```yaml\n(.*?)```", how_to, re.DOTALL)[0]
    assert check_syntax(read(first, FILE, environment={})) == []
