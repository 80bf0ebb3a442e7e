"""Every documented error has a class, and both directions of the wire agree about it."""

import re
import subprocess
import sys
import tomllib
import traceback
from pathlib import Path

import pytest

from pelton import errors
from pelton.api import ApiError, ErrorBody, error_from, errors_generated

ROOT = Path(__file__).parents[2]
ROWS = tomllib.loads((ROOT / "tools/errors.toml").read_text())


def test_the_generated_files_are_current() -> None:
    command = [sys.executable, ROOT / "tools/gen_errors.py", "--check"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout


def test_there_is_a_row_for_every_code() -> None:
    codes = [int(code) for code in ROWS]
    assert codes == sorted(set(codes))
    assert set(range(10002, 10228)) == set(codes)


def test_the_rows_are_those_of_the_protocol() -> None:
    """Code, like-HTTP code and words, their parts left open, as nats-server has them."""
    lines = (ROOT / "tests/api/error_table.tsv").read_text().splitlines()
    table = {code: (int(http), text) for code, http, text in (line.split("\t") for line in lines)}
    ours = {
        code: (row["code"], re.sub(r"\{\w+\}", "{}", row["description"]))
        for code, row in ROWS.items()
    }
    assert {code for code in table if table[code] != ours.get(code)} == set()
    assert len(table) > 220


def test_an_error_survives_the_wire() -> None:
    for code, row in ROWS.items():
        kind = getattr(errors_generated, row["name"])
        parts = row["description"].count("{")
        error = kind(*[f"part{n}" for n in range(parts)])
        body = error.body()
        assert (body.code, body.err_code) == (row["code"], int(code))
        assert "{" not in body.description
        back = error_from(body)
        assert type(back) is kind
        assert back.body() == body


def test_a_traceback_shows_the_name_that_users_are_told_to_catch() -> None:
    for code, row in ROWS.items():
        error = error_from(ErrorBody(code=row["code"], err_code=int(code), description="why"))
        last = "".join(traceback.format_exception_only(error))
        if "user" in row:
            assert isinstance(error, getattr(errors, row["user"]))
            assert last == f"pelton.errors.{row['user']}: why ({code})\n"
        else:
            assert last == f"pelton.api.errors_generated.{row['name']}: why ({code})\n"
        assert error.protocol_name == row["name"].removesuffix("Error")


def test_every_error_ends_in_error() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    assert len(kinds) > 50
    assert not [each.__name__ for each in kinds if not each.__name__.endswith("Error")]


def test_parts_are_counted() -> None:
    with pytest.raises(TypeError, match="takes 1 parts, got 0"):
        errors_generated.StreamInvalidConfigError()
    with pytest.raises(TypeError, match="takes 0 parts, got 1"):
        errors_generated.StreamNotFoundError("x")


def test_parts_are_not_templates() -> None:
    assert errors_generated.StreamInvalidConfigError("{err} {0}").description == "{err} {0}"


def test_unknown_codes_come_back_as_they_are() -> None:
    body = ErrorBody(code=418, err_code=60000, description="teapot")
    error = error_from(body)
    assert type(error) is ApiError
    assert error.body() == body
    assert str(error) == "teapot (60000)"
