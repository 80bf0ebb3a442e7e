"""The ports that servers of tests get: nobody else is given the same."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid

import pytest

from tests import ports
from tests.ports import BLOCK, FIRST, Block, free_port, kernels_first

pytestmark = pytest.mark.skipif(
    kernels_first() < FIRST + 4 * BLOCK, reason="the kernel chooses from nearly all ports here"
)
OTHER = "from tests.ports import free_port; print(*(free_port() for _ in range(20)))"


def test_none_comes_twice_and_none_is_the_kernels():
    given = [free_port() for _ in range(BLOCK // 2)]
    assert len(set(given)) == len(given)
    assert FIRST <= min(given) <= max(given) < kernels_first()


def test_two_blocks_have_no_port_in_common():
    name = f"test-{uuid.uuid4().hex}"
    blocks = [Block(name) for _ in range(4)]
    try:
        assert len({port for block in blocks for port in block.ports}) == 4 * BLOCK
    finally:
        for block in blocks:
            block.close()


def test_another_process_gets_others():
    ours = {free_port() for _ in range(20)}
    said = subprocess.run([sys.executable, "-c", OTHER], capture_output=True, check=True, text=True)
    theirs = {int(port) for port in said.stdout.split()}
    assert len(theirs) == 20
    assert not ours & theirs


def test_a_forked_process_gets_others():
    ours = free_port()
    block = ours // BLOCK
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, b"%d" % free_port())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert int(said.read()) // BLOCK != block


def test_one_that_is_taken_is_passed_over():
    block = Block()  # under the name that all tests use: no server of another test is in it
    try:
        first = block.take()
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", first + 1))
            assert block.take() == first + 2
    finally:
        block.close()


def test_where_no_block_is_left_the_kernel_chooses(monkeypatch):
    monkeypatch.setattr(ports, "kernels_first", lambda: FIRST)
    block = Block(f"test-{uuid.uuid4().hex}")
    port = block.take()
    assert len(block.ports) == 0
    assert ports.is_free(port)
