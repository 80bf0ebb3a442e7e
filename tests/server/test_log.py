"""Log lines: their exact form, files, rotation."""

import io
import json
import os
import re
import socket

import pytest

from pelton.server.errors import StartError
from pelton.server.logs.log import Log

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


HOSTILE = ["\x1b[2J", "\x07", "\x9b31m", "\x7f", "\x00", "\u202e", "\u2028", "\udc9b", "\t", "\x85"]


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_text_reaches_a_terminal_as_a_command(form):
    log, stream = lines(form=form, debug=True, trace=True)
    for say in (log.info, log.warn, log.error, log.fatal, log.debug, log.trace):
        for text in HOSTILE:
            say(f"before{text}after \u00fc")
    shown = stream.getvalue().split("\n")
    assert len(shown) == 6 * len(HOSTILE) + 1
    assert all(line.isprintable() for line in shown)
    assert all("before\\" in line and "after \u00fc" in line for line in shown[:-1])


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
    with pytest.raises(StartError, match="can't open log file"):
        log.move(str(tmp_path / "no" / "log"))
    log.info("still here")
    log.close()
    assert "still here" in path.read_text()


def test_a_large_file_is_put_aside_and_the_oldest_go(tmp_path):
    path = tmp_path / "log"
    log = Log(str(path), limit=1500, keep=3)
    for number in range(200):
        log.info(f"line {number}")
    log.close()
    aside = sorted(each for each in tmp_path.iterdir() if each != path)
    assert len(aside) == 2
    assert all(re.fullmatch(r"log(\.\d+){7}", each.name) for each in aside)
    assert all(1500 < each.stat().st_size < 1800 for each in aside)
    assert "Rotated log, backup saved as" in path.read_text()
    kept = "".join(each.read_text() for each in (*aside, path))
    assert "line 199\n" in kept
    assert "line 0\n" not in kept
    assert "Purged log file" in kept


def test_without_a_number_all_files_are_kept(tmp_path):
    log = Log(str(tmp_path / "log"), limit=100)
    for number in range(40):
        log.info(f"line {number}")
    log.close()
    kept = "".join(each.read_text() for each in tmp_path.iterdir())
    assert [f"line {n}\n" in kept for n in range(40)] == [True] * 40


def test_a_size_that_is_there_already_counts(tmp_path):
    path = tmp_path / "log"
    path.write_text("x" * 500)
    log = Log(str(path), limit=400)
    log.info("one more")
    log.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_lines_go_to_a_syslog_over_udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.settimeout(5)
        log = Log(syslog=f"udp://127.0.0.1:{daemon.getsockname()[1]}")
        log.info("hello")
        log.error("trouble")
        lines = [daemon.recv(1000).decode() for _ in range(2)]
        log.close()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d"
    head = f"{stamp} {re.escape(socket.gethostname())} pelton-server\\[{os.getpid()}\\]: "
    assert re.fullmatch(f"<29>{head}hello", lines[0]), lines
    assert re.fullmatch(f"<27>{head}trouble", lines[1]), lines


def test_lines_go_to_a_syslog_over_tcp_and_nobody_waits_for_it():
    with socket.create_server(("127.0.0.1", 0)) as daemon:
        log = Log(syslog=f"tcp://127.0.0.1:{daemon.getsockname()[1]}")
        peer, _ = daemon.accept()
        log.warn("hello")
        with peer, peer.makefile() as lines:
            assert lines.readline().endswith(f"pelton-server[{os.getpid()}]: hello\n")
        for number in range(50):
            log.warn(f"nobody there {number}")
        log.close()


def test_lines_go_to_a_socket_of_this_machine(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as daemon:
        daemon.bind(path)
        log = Log(syslog=path)
        for number in range(3000):
            log.info(f"line {number}")  # more than it holds: the rest is dropped
        assert daemon.recv(1000).endswith(b": line 0")
        log.close()


@pytest.mark.parametrize(
    "address", ["udp://nowhere", "tcp://127.0.0.1:1", "http://x:1", "/no/such/socket"]
)
def test_a_syslog_that_cant_be_reached_stops_the_start(address):
    with pytest.raises(StartError, match="can't reach syslog at"):
        Log(syslog=address)


def test_a_file_that_cant_be_opened_stops_the_start(tmp_path):
    with pytest.raises(StartError, match=r"can't open log file .*choose another file with -l"):
        Log(str(tmp_path / "no" / "log"))


def test_a_closed_stream_does_not_stop_the_server():
    log, stream = lines()
    stream.close()
    log.info("nobody hears this")
    assert stream.closed
