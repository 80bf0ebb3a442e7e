"""Log lines: their exact form, files, rotation."""

import io
import json
import os
import re

import pytest

from penstock.server.errors import StartError
from penstock.server.log import Log

MOMENT = 1_769_868_309.25  # 2026-01-31 14:05:09.25 UTC


def lines(**more):
    stream = io.StringIO()
    return Log(stream=stream, now=lambda: MOMENT, utc=True, **more), stream


def test_a_line_has_nats_servers_form():
    log, stream = lines()
    log.info("Server is ready")
    assert (
        stream.getvalue() == f"[{os.getpid()}] 2026/01/31 14:05:09.250000 [INF] Server is ready\n"
    )


def test_local_time_matches_the_form_too():
    stream = io.StringIO()
    Log(stream=stream).warn("x")
    assert re.fullmatch(
        r"\[\d+\] \d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{6} \[WRN\] x\n", stream.getvalue()
    )


def test_stamps_can_be_left_out():
    log, stream = lines(stamps=False)
    log.error("x")
    assert stream.getvalue() == f"[{os.getpid()}] [ERR] x\n"


def test_debug_and_trace_lines_only_when_asked_for():
    log, stream = lines()
    log.debug("d")
    log.trace("t")
    assert stream.getvalue() == ""
    log.configure(debug=True, trace=True, stamps=False, utc=True, form="text")
    log.debug("d")
    log.trace("t")
    assert [line.split("] ")[1] for line in stream.getvalue().splitlines()] == ["[DBG", "[TRC"]


def test_one_message_is_one_line():
    log, stream = lines()
    log.info("a\r\nb [FTL] forged")
    assert stream.getvalue().count("\n") == 1
    assert "a\\r\\nb" in stream.getvalue()


def test_structured_lines_are_json():
    log, stream = lines(form="json")
    log.fatal('say "ü"\n')
    assert json.loads(stream.getvalue()) == {
        "pid": os.getpid(),
        "time": "2026-01-31T14:05:09.250000Z",
        "level": "FTL",
        "text": 'say "ü"\\n',
    }


def test_a_rotated_file_is_opened_again(tmp_path):
    path = tmp_path / "log"
    log = Log(str(path))
    log.info("one")
    path.rename(tmp_path / "old")
    log.reopen()
    log.info("two")
    log.close()
    assert "one" in (tmp_path / "old").read_text()
    assert "two" in path.read_text()
    assert "one" not in path.read_text()


def test_moving_to_a_file_that_cant_be_opened_stays(tmp_path):
    path = tmp_path / "log"
    log = Log(str(path))
    log.move(str(tmp_path / "no" / "log"))
    log.info("still here")
    log.close()
    text = path.read_text()
    assert "can't open log file" in text
    assert "still here" in text


def test_a_file_that_cant_be_opened_stops_the_start(tmp_path):
    with pytest.raises(StartError, match=r"can't open log file .*choose another with -l"):
        Log(str(tmp_path / "no" / "log"))


def test_a_closed_stream_does_not_stop_the_server():
    log, stream = lines()
    stream.close()
    log.info("nobody hears this")
    assert stream.closed
