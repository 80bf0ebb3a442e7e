"""Pipeline files: what is read out of good ones, and that everything wrong with a bad one is told
at once, with its line. No JVM.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.pipeline.description.drawing import draw
from pelton.pipeline.description.example import EXAMPLE
from pelton.pipeline.description.functions import check_functions
from pelton.pipeline.description.graph import cut_of, ordered, streams_of
from pelton.pipeline.description.problems import PipelineError
from pelton.pipeline.description.reading import load, read

FILE = Path("/somewhere/orders.yaml")
GOOD = """\
pipeline: orders
defaults: {servers: "nats://one:4222,nats://two:4222", user: anna, password: "${SECRET}", trigger: 500ms}
sources:
  raw: {format: jetstream, stream: [ORDERS, MORE], startingOffsets: {ORDERS: 41}}
  names: {format: jetstream_kv, bucket: names, static: true, servers: "nats://three:4222"}
steps:
  parsed:
    from: [raw, names]
    python: shop.orders:parse
    with: {limit: 10, strict: true, words: [a, 1.5]}
  checked:
    from: parsed
    where: amount is not null
    columns: {total: "amount * 2"}
    select: ["id", "struct(a, b) as both"]
    drop: raw, data
    expect: {has_id: id is not null}
  late: {from: checked.rejected, sql: select * from checked_rejected, watermark: ts 10 minutes}
sinks:
  table: {from: checked, format: jetstream_delta, path: tables/orders, partitionBy: day}
  latest: {from: checked, upsert: ./latest, keys: "a, b", sequence: seq, deleteWhen: gone}
  files: {from: late, format: parquet, path: /data/files, partitionBy: [day], trigger: 1m}
  back: {from: checked, where: amount > 5, format: jetstream, subject: "big.{id}"}
"""


def pipeline(text=GOOD, **environment):
    return read(text, FILE, environment={"SECRET": "hush-hush", **environment})


def problems(text, **environment):
    with pytest.raises(PipelineError) as raised:
        pipeline(text, **environment)
    return raised.value.lines()


def test_a_good_file_is_read():
    made = pipeline()
    assert made.state == Path("/somewhere/state/orders")
    assert made.trigger_seconds == 0.5
    raw, names = made.sources["raw"], made.sources["names"]
    assert raw.options["stream"] == "ORDERS,MORE"
    assert raw.options["startingOffsets"] == '{"ORDERS": 41}'
    assert raw.options["password"] == "hush-hush"
    assert names.options == {"bucket": "names", "servers": "nats://three:4222"}
    parsed, checked = made.steps["parsed"], made.steps["checked"]
    assert parsed.python is not None
    assert parsed.python.arguments == {"limit": 10, "strict": True, "words": ["a", 1.5]}
    assert parsed.inputs == ("raw", "names")
    assert checked.select == ("id", "struct(a, b) as both")
    assert checked.drop == ("raw", "data")
    assert checked.expect == {"has_id": "id is not null"}
    assert made.steps["late"].watermark == ("ts", "10 minutes")
    sinks = made.sinks
    assert sinks["table"].place == "/somewhere/tables/orders"
    assert sinks["table"].options["partitionBy"] == "day"
    assert sinks["latest"].upsert is not None
    assert sinks["latest"].upsert.keys == ("a", "b")
    assert sinks["files"].partition_by == ("day",)
    assert [name for name, sink in sinks.items() if sink.shareable] == ["table", "latest", "back"]
    assert "hush" not in repr(made)


def test_sums_and_maintenance_of_an_upsert():
    more = "keys: [a], sums: [n, m], maintainEvery: 50, retention: 90m}"
    sinks = pipeline(GOOD.replace('keys: "a, b", sequence: seq, deleteWhen: gone}', more)).sinks
    upsert = sinks["latest"].upsert
    assert upsert is not None
    assert (upsert.sums, upsert.maintain_every, upsert.keep_hours) == (("n", "m"), 50, 2)


def test_an_upsert_into_a_catalog():
    more = "keys: [a], catalog.type: sql, catalog.token: hush-hush}"
    file = GOOD.replace(
        'upsert: ./latest, keys: "a, b", sequence: seq, deleteWhen: gone}', "UPSERT"
    )
    made = pipeline(file.replace("UPSERT", f"upsert: sales.orders, {more}"))
    sink = made.sinks["latest"]
    upsert = sink.upsert
    assert upsert is not None
    assert (upsert.path, upsert.catalog) == ("sales.orders", "default")
    assert upsert.catalog_properties == {"type": "sql", "token": "hush-hush"}
    assert (sink.place, sink.shareable) == (None, True)
    assert "hush" not in repr(made)
    assert "hush-hush" in made.secrets
    named = pipeline(file.replace("UPSERT", "upsert: sales.orders, keys: [a], catalog: prod}"))
    assert named.sinks["latest"].upsert.catalog == "prod"
    text = file.replace("UPSERT", "upsert: ./latest, keys: [a], catalog: prod}")
    assert any("must be namespace.name" in each for each in problems(text))


def test_a_stream_is_read_from_its_begin_unless_the_file_says_otherwise():
    text = GOOD.replace(", startingOffsets: {ORDERS: 41}", "")
    assert pipeline(text).sources["raw"].options["startingOffsets"] == "earliest"


def test_the_example_is_a_good_file(tmp_path):
    (tmp_path / "orders.yaml").write_text(EXAMPLE)
    made = load(tmp_path / "orders.yaml", environment={})
    assert len({cut_of(made, sink) for sink in made.sinks.values()}) == 1
    assert all(sink.shareable for sink in made.sinks.values())


def test_everything_wrong_is_told_at_once_with_its_line():
    said = problems(
        """\
pipeline: my orders
sorces: {}
sources:
  raw: {format: jetstrem, stream: ORDERS}
  kv: {format: jetstream_kv, buckt: names, startingOffsets: never}
  files: {format: json, path: in}
steps:
  parsed: {from: rwa, where: "x > 1", drpo: [a]}
  idle: {from: raw}
  both: {from: raw, python: shop, sql: "select 1"}
sinks:
  table: {from: parsed, format: jetstream_delta}
  same: {from: parsed, upsert: out, keys: [id]}
  other: {from: parsed, upsert: ./out, keys: [id], mode: never}
  none: {from: kv}
  loud: {from: both, format: jetstream, maxInFlight: many, txnAppId: x}
"""
    )
    wanted = [
        (1, "'my orders' is not a valid name"),
        (2, "unknown key 'sorces'; did you mean sources?"),
        (4, "did you mean jetstream?"),
        (5, "unknown option 'buckt'; did you mean bucket?"),
        (5, "startingOffsets is 'never', but must be"),
        (6, "a stream of json needs a schema"),
        (6, "no step or sink reads files"),
        (8, "unknown key 'drpo'; did you mean drop?"),
        (8, "there is no source or step rwa; did you mean raw?"),
        (9, "the step does nothing"),
        (9, "no step or sink reads idle"),
        (10, "python is 'shop', but must be module:function"),
        (10, "the query does not read raw"),
        (12, "option path is missing"),
        (14, "mode is 'never', but must be append, update or complete"),
        (15, "give either format or upsert"),
        (16, "maxInFlight is 'many', but must be a whole number"),
        (16, "option txnAppId cannot be given: the pipeline says"),
    ]
    for line, text in wanted:
        assert any(one.startswith(f"{FILE}:{line}: ") and text in one for one in said), (text, said)
    assert all("\n" not in one for one in said)


@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("path: tables/orders", "path: ./latest/", 21, "is written by sinks.table already"),
        ("from: late,", "from: checked.rejected,", 18, "no step or sink reads late"),
        ("from: [raw, names]", "from: [raw, names, late]", 7, "form a cycle: "),
        (", static: true", "", 0, None),
        ("from: [raw, names]", "from: [names]", 20, "all its sources are static"),
        ("late: {from: checked.rejected", "late: {from: parsed.rejected", 18, "needs expect or onError in parsed"),
        ("  back: {from", "  raw: {from", 23, "raw is taken already, in line 4"),
        ("  back: {from", "  table: {from", 23, "table occurs twice, first in line 20"),
        ("back: {from: checked", "back: {from: table", 23, "table is a sink, which cannot be read"),
        ("partitionBy: day}", "partitionBy: day, mode: update}", 20, "append or complete"),
        ("trigger: 500ms", "trigger: often", 2, "trigger is 'often', but must be a duration"),
        ("trigger: 500ms", "tigger: 1s", 2, "unknown key 'tigger'; did you mean trigger?"),
        ("trigger: 500ms", "token: t", 2, "give either token, or user and password"),
        ("subject: \"big.{id}\"", "subject: \"big.>\"", 23, "subject is 'big.>', but must be"),
        ("pipeline: orders", "metrics: {prt: 1}\npipeline: orders", 1, "unknown key 'prt'"),
        ("pipeline: orders", "spark: {cores: 1}\npipeline: orders", 1, "unknown key 'cores'"),
        ("watermark: ts 10 minutes", "watermark: ts", 18, "a column and a delay"),
        ("trigger: 1m}", "query: shared}", 22, "can share a query; leave query out"),
        ("with: {limit", "wiht: {limit", 10, "did you mean with?"),
        ("sinks:\n", "sinks:\n  x: 5\n", 20, "must be keys and values (from, where, select, ...)"),
        ("deleteWhen: gone}", "deleteWhen: gone, sums: [n]}", 21, "deleteWhen removes are unknown"),
        ("deleteWhen: gone}", "maintainEvery: 0}", 21, "maintainEvery is '0', but must be a whole"),
        ("deleteWhen: gone}", "retention: 5m}", 21, "retention is '5m', but must be a duration of an"),
        ("expect: {has_id: id is not null}", "expect: yes", 17, "expect must be names with a text each"),
    ],
)  # fmt: skip
def test_each_mistake_has_its_line(old, new, line, text):
    changed = GOOD.replace(old, new, 1)
    if text is None:
        pipeline(changed)
        return
    said = problems(changed)
    assert any(one.startswith(f"{FILE}:{line}: ") and text in one for one in said), said


def test_nobody_reads_what_was_rejected():
    text = GOOD.replace(
        "from: checked.rejected, sql: select * from checked_rejected, ", "from: checked, "
    )
    assert "rows that fail expect would be lost" in problems(text)[0]


def test_yaml_that_is_none_is_one_line():
    assert problems("a: [1, 2") == [
        f"{FILE}:1: this is not YAML: expected ',' or ']', but got '<stream end>'"
    ]
    assert "keys and values" in problems("- a\n")[0]
    assert "keys and values" in problems("")[0]
    assert "sources is missing" in str(problems("pipeline: a"))


def test_anchors_and_merges():
    text = """\
pipeline: a
sources:
  one: &table {format: jetstream_delta, path: one, maxFilesPerTrigger: 5}
  two: {<<: *table, path: two}
sinks:
  out: {from: one, format: jetstream_delta, path: out}
  out2: {from: two, format: jetstream_delta, path: out2}
"""
    made = pipeline(text)
    assert made.sources["two"].options == {"path": "/somewhere/two", "maxFilesPerTrigger": "5"}


def test_the_environment_fills_values_and_is_never_shown():
    text = GOOD.replace("[ORDERS, MORE], startingOffsets: {ORDERS: 41}", '"${STREAM:-ORDERS}"')
    assert pipeline(text).sources["raw"].options["stream"] == "ORDERS"
    assert pipeline(text, STREAM="X").sources["raw"].options["stream"] == "X"
    said = problems(text, STREAM="not good.at all")
    assert "not good" not in str(said)
    assert "${STREAM:-ORDERS}" in said[0]
    assert "${NOBODY} is not set" in problems(GOOD.replace("${SECRET}", "${NOBODY}"))[0]
    assert "begins a variable" in problems(GOOD.replace("${SECRET}", "${a b}"))[0]
    escaped = GOOD.replace("where: amount > 5", """where: "a = '$${b}'\"""")
    assert pipeline(escaped).sinks["back"].where == "a = '${b}'"
    assert (
        pipeline(GOOD.replace("${SECRET}", "${S:-}") + "", S="x: {y")
        .sources["raw"]
        .options["password"]
        == "x: {y"
    )


def test_a_password_is_not_in_a_problem():
    said = problems(GOOD.replace("user: anna, ", ""))
    assert "password is given without user" in said[0]
    assert "hush" not in str(said)
    made = pipeline()
    assert made.hide("tried hush-hush in vain") == "tried *** in vain"


def test_the_graph_is_drawn():
    lines = "\n".join(draw(pipeline()))
    for word in (
        "raw  jetstream ORDERS,MORE",
        "(with names)",
        "rejected",
        "=> latest  upsert",
        "parsed ↑",
    ):
        assert word in lines, lines
    assert "hush" not in lines


def test_where_ways_come_together():
    text = """\
pipeline: a
sources:
  one: {format: jetstream, stream: A}
  two: {format: jetstream, stream: B}
  all: {format: jetstream_kv, bucket: c, static: true}
steps:
  left: {from: one, where: "a > 1"}
  both: {from: [left, two]}
  more: {from: [both, all], sql: "select * from both join all using (id)"}
sinks:
  x: {from: more, format: jetstream_delta, path: x}
  y: {from: both, format: jetstream_delta, path: y}
  z: {from: left, format: jetstream_delta, path: z}
"""
    made = pipeline(text)
    assert [cut_of(made, sink) for sink in made.sinks.values()] == ["both", "both", "one"]
    assert streams_of(made, "x") == ("one", "two")
    assert ordered(made).index("both") > ordered(made).index("left")


def test_functions_are_looked_at_without_spark(tmp_path):
    (tmp_path / "shop_steps.py").write_text("def parse(rows, limit=1): return rows\nBAD = 1\n")
    (tmp_path / "shop_broken.py").write_text("import nothing_of_this_name\n")
    text = """\
pipeline: a
sources:
  raw: {format: jetstream, stream: A}
steps:
  one: {from: raw, python: "shop_steps:parse", with: {limit: 2}}
  two: {from: one, python: "shop_steps:parse", with: {limt: 2}}
  three: {from: two, python: "shop_steps:prase"}
  four: {from: three, python: "shop_broken:x"}
  five: {from: four, python: "shop_missing:x"}
  six: {from: five, python: "shop_steps:BAD"}
sinks:
  out: {from: six, format: jetstream_delta, path: out}
"""
    made = read(text, tmp_path / "a.yaml", environment={})
    found = {problem.line: problem.text for problem in check_functions(made)}
    assert 5 not in found
    assert "unexpected keyword argument 'limt'" in found[6]
    assert "has no function prase; it has parse" in found[7]
    assert "needs nothing_of_this_name" in found[8]
    assert "there is no module shop_missing" in found[9]
    assert "has no function BAD" in found[10]


def test_expressions_that_yaml_has_cut_are_whole_again():
    def select(text):
        changed = GOOD.replace('["id", "struct(a, b) as both"]', text)
        return pipeline(changed).steps["checked"].select

    assert select("[id, f(a, g(b, c)) as d]") == ("id", "f(a, g(b, c)) as d")
    assert select('[id, "f(\',(\') as d", "`e,`"]') == ("id", "f(',(') as d", "`e,`")
    assert select("id, h(1, 2)") == ("id", "h(1, 2)")


@given(st.text(st.sampled_from("ab:-{}[]&*<>|'\" \n\t#,?!%@`$"), max_size=60))
def test_no_text_does_anything_but_fail_well(text):
    with pytest.raises(PipelineError) as raised:
        read(text, FILE, environment={})
    assert raised.value.problems
