"""A log whose messages come with their sequences, as a mirror's: an unfinished one comes again."""

from pathlib import Path

import pytest

from pelton.core.log.recovery import open_log


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_the_sequence_of_an_unfinished_record_is_free_in_a_numbered_log(
    tmp_path: Path, cut: int
) -> None:
    log = open_log(str(tmp_path))
    for number in range(3):
        log.add(1000 + number, "s.a", b"%d" % number * 50)
    log.flush()
    del log
    (path,) = tmp_path.glob("*.seg")
    path.write_bytes(path.read_bytes()[:-cut])
    log = open_log(str(tmp_path), numbered=True)
    assert (log.last_seq, log.msgs, log.lost) == (2, 2, [])
    assert log.add(1002, "s.a", b"2" * 50) == 3
    log.flush()
    assert log.get(3) is not None
    assert len(list(tmp_path.glob("*.torn-*"))) == 1


def test_it_is_not_in_another(tmp_path: Path) -> None:
    log = open_log(str(tmp_path))
    for number in range(3):
        log.add(1000 + number, "s.a", b"%d" % number * 50)
    log.flush()
    del log
    (path,) = tmp_path.glob("*.seg")
    path.write_bytes(path.read_bytes()[:-5])
    assert open_log(str(tmp_path)).last_seq == 3


@pytest.mark.parametrize("head", [b"", b"PEN", bytes(400)], ids=["empty", "torn", "zeros"])
@pytest.mark.parametrize("numbered", [True, False])
def test_a_newest_file_that_was_never_written_does_not_end_a_numbered_log(
    tmp_path: Path, head: bytes, *, numbered: bool
) -> None:
    """A power cut took messages 4 and 5 and the head of the file behind them. In a mirror they come
    again; in another log nobody was told of them, and their sequences are not used again.
    """
    log = open_log(str(tmp_path))
    for number in range(3):
        log.add(1000 + number, "s.a", b"%d" % number * 50)
    log.flush()
    del log
    (tmp_path / f"{6:020}.seg").write_bytes(head)
    log = open_log(str(tmp_path), numbered=numbered)
    assert (log.last_seq, log.msgs, log.lost) == (3 if numbered else 5, 3, [])
    assert log.add(1003, "s.a", b"3" * 50) == (4 if numbered else 6)
    log.flush()
    del log
    log = open_log(str(tmp_path), numbered=numbered)
    assert (log.last_seq, log.msgs, log.lost) == (4 if numbered else 6, 4, [])
