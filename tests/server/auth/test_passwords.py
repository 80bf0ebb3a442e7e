"""bcrypt checks in threads: fair between addresses, bounded, and never on the loop."""

import threading
import time

import bcrypt

from pelton.server.auth.passwords import WAITING_MAX, Passwords, check_bcrypt

HASH = bcrypt.hashpw(b"x", b"$2b$04$abcdefghijklmnopqrstuu").decode()


class Home:
    """What the loop does: runs what threads hand in, when it is asked to."""

    def __init__(self):
        self.calls = []
        self.came = threading.Condition()

    def __call__(self, call):
        with self.came:
            self.calls.append(call)
            self.came.notify()

    def run(self, answers, count):
        deadline = time.monotonic() + 20
        while len(answers) < count:
            with self.came:
                assert self.came.wait_for(lambda: self.calls, deadline - time.monotonic())
                calls, self.calls = self.calls, []
            for call in calls:
                call()


def test_plain_ones_are_answered_at_once():
    passwords = Passwords(Home())
    assert passwords.check("h", "x", "x", lambda fits: None) is True
    assert passwords.check("h", "x", "y", lambda fits: None) is False


def test_hashes_are_answered_on_the_loop():
    home = Home()
    passwords = Passwords(home)
    answers = []
    for given in ("x", "y", "x" * 100):
        assert passwords.check("h", HASH, given, answers.append) is None
    assert answers == []
    home.run(answers, 3)
    assert sorted(answers) == [False, False, True]


def test_every_address_gets_its_turn():
    home = Home()
    passwords = Passwords(home)
    passwords._workers = 1
    order = []
    for _ in range(20):
        passwords.check("many", HASH, "y", lambda fits: order.append("many"))
    passwords.check("one", HASH, "x", lambda fits: order.append("one"))
    home.run(order, 21)
    assert order.index("one") <= 2


def test_an_address_has_few_places():
    home = Home()
    passwords = Passwords(home)
    passwords._workers = 0  # nothing is taken up
    found = [passwords.check("h", HASH, "x", lambda fits: None) for _ in range(WAITING_MAX + 1)]
    assert found == [None] * WAITING_MAX + [False]
    assert passwords.check("other", HASH, "x", lambda fits: None) is None
    passwords.close()


def test_only_the_first_72_bytes_count():
    assert check_bcrypt(bcrypt.hashpw(b"x" * 72, bcrypt.gensalt(4)).decode(), "x" * 200)
