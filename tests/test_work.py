"""The processor time of a process is counted with that of its children, and written as a table."""

import subprocess
import sys
import time

from tests.schedule import work_table
from tests.work import TICKS_PER_S, Meter, work_s

WORK_S = 0.3
TICK_S = 1 / TICKS_PER_S


def test_a_child_counts_while_it_runs_and_when_it_has_ended() -> None:
    until = work_s() + WORK_S
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            deadline = time.monotonic() + 60
            while work_s(child.pid) < WORK_S + TICK_S:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            assert work_s() >= until
        finally:
            child.kill()
    assert work_s() >= until
    assert work_s(child.pid) == 0


def test_looks_of_both_kinds_add_up_to_all_work() -> None:
    before, meter = work_s(), Meter()
    looks = []
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        try:
            for whole in (False, True, False, False, True):
                deadline = time.monotonic() + 60
                until = work_s() + 0.1
                while work_s() < until:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
                looks.append(meter.look_s(whole=whole))
        finally:
            child.kill()
    assert looks[1] > looks[0] + 0.05  # the work of the child
    looks += [meter.look_s(whole=False), meter.look_s(whole=True)]
    assert abs(sum(looks) - (work_s() - before)) <= 8 * TICK_S


def test_the_table_has_the_sum_and_what_takes_long() -> None:
    work = {"a.py::one": 6.0, "a.py::two": 1.0, "b.py::one": 1.0}
    assert [line.split() for line in work_table(work).splitlines()] == [
        ["8.0", "all"],
        ["7.0", "a.py"],
        ["6.0", "a.py::one"],
    ]
