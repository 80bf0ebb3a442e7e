"""How much memory there is: the machine's, or less where a container says so."""

import os

from pelton.server import memory


def test_it_is_the_machines_unless_a_container_has_less(tmp_path, monkeypatch):
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "_CONTAINER", (str(tmp_path / "absent"), str(limit)))
    assert memory.memory_bytes() == machine
    limit.write_text("max\n")
    assert memory.memory_bytes() == machine
    limit.write_text("1048576\n")
    assert memory.memory_bytes() == 1048576
