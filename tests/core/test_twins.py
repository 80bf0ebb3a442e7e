"""The twins in plain Python: the same interface, the same tests, and the same results as the compiled modules.

In a process with PELTON_PURE=1 they are imported in place of these; here they are beside them.
"""

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pelton.core
from pelton.core import libraries
from pelton.core.base import s2
from pelton.core.base.buffer import crc32c_of
from pelton.core.libraries import PORTABLE, Finder, NoServerError, no_server
from pelton.core.plain import buffer as plain_buffer
from pelton.core.plain import json_scan as plain_json
from pelton.core.plain import s2 as plain_s2
from pelton.core.plain import wire as plain_wire
from pelton.core.protocol import json_scan, wire

CORE = Path(pelton.core.__file__).parent
TESTS = Path(__file__).parent
SAME_TESTS = [
    "base/test_s2.py",
    "bulk/test_columns.py",
    "bulk/test_header_maps.py",
    "bulk/test_publish_window.py",
    "bulk/test_wire_columns.py",
    "protocol/test_json_scan.py",
    "protocol/test_overlaps.py",
    "protocol/test_subjects.py",
    "protocol/test_wire.py",
    "protocol/test_wire_refusals.py",
]
# What the server and tests of the compiled modules use.
COMPILED_ONLY = {
    "buffer": {
        "OutBuffer",
        "ReadCursor",
        "crc32c_table_of",
        "digits_of",
        "hash_of",
        "number_of",
        "seed_hash",
    },
    "subjects": {"SubjectTrie"},
}
TWINS = sorted(PORTABLE - libraries.WITHOUT_TWIN)


def names_of(body: list[ast.stmt]) -> set[str]:
    """What a stub declares."""
    found = set()
    for each in body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef):
            found.add(each.name)
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_what_the_stub_says(name: str) -> None:
    twin = importlib.import_module(f"pelton.core.plain.{name.rpartition('.')[2]}")
    stub = ast.parse((CORE / f"{name.replace('.', '/')}.pyi").read_text())
    wanted = names_of(stub.body) - COMPILED_ONLY.get(name.rpartition(".")[2], set())
    assert wanted <= set(vars(twin))
    for each in stub.body:
        if isinstance(each, ast.ClassDef) and each.name in wanted:
            functions = [one for one in each.body if isinstance(one, ast.FunctionDef)]
            methods = {one.name for one in functions if not one.decorator_list}
            assert methods <= set(dir(getattr(twin, each.name))), each.name


def test_every_module_with_a_stub_has_a_twin() -> None:
    stubs = {name for name in PORTABLE if (CORE / f"{name.replace('.', '/')}.pyi").exists()}
    assert stubs - {"base.maps"} == set(TWINS)
    there = {path.stem for path in (CORE / "plain").glob("*.py")} - {"__init__"}
    assert there == {name.rpartition(".")[2] for name in TWINS}


def run_pure(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"PELTON_PURE": "1"},
        capture_output=True,
        text=True,
        check=False,
        cwd=TESTS.parents[1],
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SAME_TESTS)
def test_the_tests_of_a_module_are_those_of_its_twin(name: str) -> None:
    # a block of 4 MB takes half a minute there
    done = run_pure(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not 4194304", str(TESTS / name)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_client_takes_the_twins() -> None:
    done = run_pure(
        "-c",
        "import sys, pelton.client, pelton.client.sync\n"
        "from pelton.core.protocol import wire\n"
        "print(wire.__file__)\n"
        "print([m for m in sys.modules.values() if '_portable' in str(getattr(m, '__file__', ''))])",
    )
    assert done.returncode == 0, done.stderr
    file, compiled = done.stdout.splitlines()
    assert file.endswith("core/plain/wire.py")
    assert compiled == "[]"


def test_a_twin_is_taken_where_no_library_is(tmp_path: Path) -> None:
    spec = Finder(str(tmp_path), pure=False).find_spec("pelton.core.protocol.wire")
    assert spec is not None
    assert isinstance(spec.loader, libraries.TwinLoader)
    assert spec.loader.create_module(spec) is plain_wire
    assert Finder(str(tmp_path), pure=False).find_spec("pelton.core.base.maps") is None


@pytest.mark.parametrize("platform", ["darwin", "win32", "linux"])
def test_a_server_says_what_it_needs(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.delenv("PELTON_PURE", raising=False)
    with pytest.raises(NoServerError) as raised:
        Finder(str(tmp_path), pure=False).find_spec("pelton.core.log.log")
    assert raised.value.name == "pelton.core.log.log"
    text = str(raised.value)
    assert text == no_server()
    assert "\n" not in text
    assert ("compiler" if platform == "linux" else "container or in WSL") in text


# --- beside each other -----------------------------------------------------------------------------------------------

LINES = st.sampled_from(
    [
        b"PUB a 3\r\nabc\r\n",
        b"HPUB a r 12 15\r\nNATS/1.0\r\n\r\nabc\r\n",
        b"MSG a.b 7 3\r\nabc\r\n",
        b"HMSG a 1 reply 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"LMSG a + r q1 q2 2\r\nhi\r\n",
        b"LMSG a | q1 2\r\nhi\r\n",
        b"LS+ a q 3\r\n",
        b"LS- a q\r\n",
        b"SUB a q 1\r\n",
        b"UNSUB 1 5\r\n",
        b"CONNECT {}\r\n",
        b"INFO  {\xc3\xa4}\r\n",
        b"PING \t x\r\n",
        b"PONG\r\n",
        b"+OK\r\n",
        b"-ERR 'no'\r\n",
        b"PUB a 9999999999\r\n",
        b"msg a \t 1\t2\n\xff\xff\r\n",
    ]
)
PIECES = st.one_of(LINES, st.binary(max_size=3), st.sampled_from([b" ", b"\r", b"\n", b"\t", b"1"]))


def outcome(module: ModuleType, role: int, data: bytes, cuts: list[int]) -> list[object]:
    """What a parser gives for each part of the data."""
    parser = module.Parser(role, 40, 64)
    found: list[object] = []
    ends = [*sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    start = 0
    for end in ends:
        try:
            found.append(parser.feed(data[start:end]))
        except module.WireError as error:
            found.append((error.code, error.events, str(error)))
        found.append(parser.waiting if parser.failed is None else parser.failed)
        start = end
    return found


@given(
    st.sampled_from([wire.ROLE_SERVER, wire.ROLE_CLIENT, wire.ROLE_LEAF]),
    st.lists(PIECES, max_size=8).map(b"".join),
    st.lists(st.integers(0, 400), max_size=6),
)
def test_both_parsers_read_the_same(role: int, data: bytes, cuts: list[int]) -> None:
    assert outcome(wire, role, data, cuts) == outcome(plain_wire, role, data, cuts)


JSON = st.one_of(
    st.text('{}[],:"\\ntrue falsunl0123.eE-+ud89', max_size=30),
    st.recursive(
        st.sampled_from(["1", "-0.5e3", '"a\\n\\u00e4"', "true", "null"]),
        lambda inner: (
            st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
            | st.lists(inner, max_size=3).map(
                lambda each: "{" + ",".join(f'"k": {e}' for e in each) + "}"
            )
        ),
    ),
)


@given(JSON, st.integers(0, 4))
def test_both_scans_find_the_same(text: str, depth: int) -> None:
    data = text.encode()
    assert json_scan.document(data, 0, depth) == plain_json.document(data, 0, depth)
    assert json_scan.blanks(data, 0) == plain_json.blanks(data, 0)


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["\\ud800", "\\udc00", "\\u0041", "\\\\", "\\n"]), st.text(max_size=2)
        )
        | st.sampled_from(["\ud83d", "\ude00", "é"])
    ).map("".join),
    st.booleans(),
)
def test_both_take_out_lone_surrogates(text: str, escapes: bool) -> None:
    assert json_scan.unicode_only(text, escapes) == plain_json.unicode_only(text, escapes)


@given(st.binary(max_size=300), st.integers(0, 2**32 - 1))
def test_both_checksums_are_the_same(data: bytes, start: int) -> None:
    assert crc32c_of(data, start) == plain_buffer.crc32c_of(data, start)


@given(st.one_of(st.binary(max_size=300), st.binary(max_size=9).map(lambda part: part * 60)))
def test_each_reads_the_blocks_of_the_other(data: bytes) -> None:
    assert s2.decompress(plain_s2.compress(data)) == data
    assert plain_s2.decompress(s2.compress(data)) == data


@given(st.binary(max_size=40))
def test_both_refuse_the_same_blocks(block: bytes) -> None:
    results = []
    for module in (s2, plain_s2):
        try:
            results.append(module.decompress(block))
        except ValueError as error:
            results.append(str(error))
    assert results[0] == results[1]
