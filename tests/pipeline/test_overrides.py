"""Targets of a pipeline file, and secrets that come from files. No JVM."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pelton.cli.__main__ import main
from pelton.cli.spark import pipeline as commands
from pelton.pipeline.description.document import Items, Section, Text
from pelton.pipeline.description.fields import plain
from pelton.pipeline.description.overrides import TARGETS, with_target
from pelton.pipeline.description.problems import PipelineError, Problems, without_secrets
from pelton.pipeline.description.reading import load, read
from pelton.pipeline.description.variables import Variables

FILE = Path("/somewhere/orders.yaml")
SHOP = """\
pipeline: orders
defaults: {trigger: 1s, servers: "nats://127.0.0.1:4222"}
sources:
  raw: {format: jetstream, stream: ORDERS, maxOffsetsPerTrigger: 100}
sinks:
  table: {from: raw, format: jetstream_delta, path: tables/orders}
targets:
  dev:
    default: true
  prod:
    defaults: {servers: "nats://prod:4222", user: orders, password: "${PASSWORD}"}
    spark: {master: "spark://one:7077"}
    sinks: {table: {path: "s3://bucket/orders"}}
"""


def shop(text=SHOP, target=None, **environment):
    return read(text, FILE, target=target, environment=environment)


def problems(text=SHOP, target=None, **environment):
    with pytest.raises(PipelineError) as raised:
        shop(text, target, **environment)
    return [line.removeprefix("/somewhere/orders.yaml:") for line in raised.value.lines()]


def test_a_target_overrides_single_options():
    prod = shop(target="prod", PASSWORD="very secret")
    assert prod.name == "orders-prod"
    assert prod.target == "prod"
    assert prod.state == Path("/somewhere/state/orders-prod")
    assert prod.trigger_seconds == 1.0
    assert prod.sources["raw"].options["maxOffsetsPerTrigger"] == "100"
    assert prod.sources["raw"].options["servers"] == "nats://prod:4222"
    assert prod.sinks["table"].place == "s3://bucket/orders"
    assert prod.spark == {"master": "spark://one:7077"}
    assert prod.hide("it is very secret") == "it is ***"


def test_what_other_targets_need_is_not_asked_for():
    dev = shop()  # PASSWORD is not set
    assert dev.name == "orders-dev"
    assert dev.sinks["table"].place == "/somewhere/tables/orders"


def test_the_choice_of_a_target():
    prod = {"PASSWORD": "secret", "PELTON_TARGET": "prod"}
    assert shop(**prod).target == "prod"
    assert shop(target="dev", **prod).target == "dev"
    one = SHOP.partition("targets:")[0] + "targets:\n  only:\n"
    assert shop(one).target == "only"
    none = SHOP.partition("targets:")[0]
    assert shop(none, PELTON_TARGET="prod").target == ""
    assert shop(none, PELTON_TARGET="prod").name == "orders"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "default: true",
            "spark: {}",
            "7: which target? --target or PELTON_TARGET names one of dev, prod;",
        ),
        (
            "  prod:\n",
            "  prod:\n    default: true\n",
            "7: only one target can have default: true, not dev and prod",
        ),
        ("default: true", "default: yes", "9: default must be true or false"),
        (
            "default: true",
            "default: true\n    sinsk: {}",
            "10: pipeline: unknown key 'sinsk'; did you mean sinks?",
        ),
        (
            "default: true",
            "default: true\n    defaults: {servesr: x}",
            "10: defaults: unknown key 'servesr'; did you mean servers?",
        ),
        (
            "default: true",
            "default: true\n    sinks:\n      table:\n        pth: x",
            "12: sinks.table: unknown option 'pth'; did you mean path?",
        ),
        ("  dev:\n", "  'd v':\n    state: x\n  dev:\n", "8: targets: 'd v' is not a valid name"),
        (
            "    default: true\n  prod:",
            "    default: true\n  more: 3\n  prod:",
            "10: targets.more: must be keys and values",
        ),
    ],
)
def test_faults_name_the_line_of_the_target(old, new, line):
    found = problems(SHOP.replace(old, new, 1))
    assert any(each.startswith(line) for each in found), found


@pytest.mark.parametrize(
    ("target", "environment", "said"),
    [
        ("porde", {}, "7: there is no target porde; did you mean prod?"),
        (
            None,
            {"PELTON_TARGET": "x"},
            "7: there is no target x, which PELTON_TARGET names; there are: dev, prod",
        ),
        (
            "prod",
            {},
            "11: ${PASSWORD} is not set in the environment; ${PASSWORD:-text} has a default",
        ),
    ],
)
def test_a_target_that_cannot_be_used(target, environment, said):
    assert said in problems(SHOP, target, **environment)


def test_a_file_without_targets_refuses_one():
    said = "1: there is no target dev: the file has no section targets"
    assert problems(SHOP.partition("targets:")[0], "dev") == [said]


def test_the_folder_and_the_name_of_a_target_may_be_its_own():
    kept = SHOP.replace("default: true", "{pipeline: orders, state: /var/lib/orders}")
    assert shop(kept, "dev").name == "orders"
    assert shop(kept, "dev").state == Path("/var/lib/orders")
    given = SHOP.replace("pipeline: orders", "state: /var/lib/orders\npipeline: orders")
    assert shop(given).state == Path("/var/lib/orders-dev")
    assert read(given, FILE, state="/x", environment={}).state == Path("/x")


def test_a_key_without_a_value_removes_it_and_the_target_is_a_variable():
    text = SHOP.replace(
        "default: true", "default: true\n    sources: {raw: {maxOffsetsPerTrigger: }}"
    )
    text = text.replace("path: tables/orders", 'path: "tables/${PELTON_TARGET}"')
    dev = shop(text)
    assert "maxOffsetsPerTrigger" not in dev.sources["raw"].options
    assert dev.sinks["table"].place == "/somewhere/tables/dev"


def test_two_targets_with_one_table_are_a_warning():
    text = SHOP.replace("path: tables/orders", 'path: "s3://bucket/orders"')
    [warning] = shop(text).warnings
    assert warning.line == 6
    assert "targets dev and prod both write to s3://bucket/orders" in warning.text
    assert not shop(SHOP).warnings


TREES = st.recursive(
    st.text(max_size=3),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), TREES | st.none(), max_size=3)


def tree(value):
    if isinstance(value, dict):
        return Section(1, {k: tree(v) for k, v in value.items()}, dict.fromkeys(value, 1))
    if isinstance(value, list):
        return Items(tuple(map(tree, value)), 1)
    return None if value is None else Text(value, 1, value)


def patched(base, patch):
    """JSON merge patch, as RFC 7396 has it, except that it keeps nulls of a new section."""
    made = dict(base)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, dict) and isinstance(made.get(key), dict):
            made[key] = patched(made[key], value)
        else:
            made[key] = value
    return made


@given(MAPS, MAPS)
def test_a_target_is_a_merge_patch(base, patch):
    document = tree({**base, TARGETS: {"t": patch}})
    assert plain(with_target(document, "t")) == plain(tree(patched(base, patch)))


SECRET_FILE = """\
pipeline: orders
defaults: {servers: "nats://127.0.0.1:4222", user: orders, password: "${file:PLACE}"}
sources:
  raw: {format: jetstream, stream: ORDERS}
sinks:
  table: {from: raw, format: jetstream_delta, path: tables/orders}
"""


@pytest.fixture
def secret(tmp_path):
    place = tmp_path / "secrets" / "password"
    place.parent.mkdir()
    place.write_text('it\'s "s3cret"\\x\n\n')
    return place


def test_a_secret_comes_from_a_file(tmp_path, secret):
    for place in (str(secret), "secrets/password", "${CREDENTIALS_DIRECTORY}/password"):
        environment = {"CREDENTIALS_DIRECTORY": str(secret.parent)}
        made = read(
            SECRET_FILE.replace("PLACE", place), tmp_path / "f.yaml", environment=environment
        )
        assert made.servers["password"] == 'it\'s "s3cret"\\x'
        assert "s3cret" not in repr(made)
        assert "s3cret" not in made.hide(f"a {made.servers['password']!r}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file or directory"),
        (b" \n", "the file is empty"),
        (b"\xff\xfe", "it is not text in UTF-8"),
        (b"x" * 70000, "the file is larger than 64 KiB"),
    ],
)
def test_a_secret_that_cannot_be_read(tmp_path, content, said):
    place = tmp_path / "secret"
    if content is not None:
        place.write_bytes(content)
    with pytest.raises(PipelineError) as raised:
        read(SECRET_FILE.replace("PLACE", str(place)), tmp_path / "f.yaml", environment={})
    line = raised.value.lines()[0]
    assert line.startswith(f"{tmp_path}/f.yaml:2: cannot ")
    assert f"the secret in {place}: " in line
    assert said in line


def test_no_fault_shows_what_a_file_holds(tmp_path):
    """Wherever a secret is used, whatever is wrong with it there."""
    secret = "do not \"reveal\" 'this'\\here"
    (tmp_path / "secret").write_text(secret)
    text = SECRET_FILE.replace('"${file:PLACE}"', "x")
    wrong = {
        "password: x": "password: x, trigger: SECRET",
        "format: jetstream,": "format: SECRET,",
        "stream: ORDERS": "stream: ORDERS, startingOffsets: SECRET",
        "path: tables/orders": "path: tables/orders, mode: SECRET",
        "from: raw": "from: SECRET",
        "pipeline: orders": "pipeline: SECRET",
    }
    for old, new in wrong.items():
        given = text.replace(old, new.replace("SECRET", '"${file:secret}"'))
        assert given != text
        try:
            said = str(read(given, tmp_path / "f.yaml", environment={}).warnings)
        except PipelineError as error:
            said = str(error)
        assert said
        assert "reveal" not in said, old


@pytest.mark.parametrize("kind", ["command", "cmd", "exec", "shell"])
def test_a_file_runs_no_programs(tmp_path, kind):
    text = SECRET_FILE.replace("file:PLACE", f"{kind}:touch {tmp_path}/made")
    with pytest.raises(PipelineError, match=r"a pipeline file runs no programs; write the secret"):
        read(text, tmp_path / "f.yaml", environment={})
    assert not (tmp_path / "made").exists()


@given(st.text(min_size=4, max_size=20), st.text(max_size=10), st.text(max_size=10))
def test_secrets_are_hidden_in_every_spelling(secret, before, after):
    for spelled in (secret, repr(secret)[1:-1]):
        shown = without_secrets(f"{before}{spelled}{after}", {secret})
        assert len(shown) < len(before) + len(after) + 4 or "***" in shown


@given(st.text(alphabet="${}:ab/_-\n", max_size=12))
def test_any_text_is_filled_or_refused(text):
    found = Problems()
    filled = Variables({"a": "A"}, Path("/nowhere"), found)
    section = filled.section(Section(1, {"key": Text(text, 1, text)}, {"key": 1}))
    value = section.entries["key"]
    assert isinstance(value, Text)
    assert found.found or "${" not in text.replace("$${", "").replace("${a", "") or value.value


def test_all_commands_with_a_file_take_a_target(tmp_path, capsys):
    path = tmp_path / "orders.yaml"
    path.write_text(SHOP)
    assert load(path).target == "dev"
    assert main(["pipeline", "status", str(path), "--target", "dev"]) == 0
    assert "orders-dev: not running" in capsys.readouterr().out
    assert main(["pipeline", "status", str(path), "--target", "devv"]) == 1
    assert "there is no target devv; did you mean dev?" in capsys.readouterr().err
    for name, made in vars(commands).items():
        if any(getattr(each, "name", "") == "file" for each in getattr(made, "params", ())):
            assert any("--target" in each.opts for each in made.params), name
