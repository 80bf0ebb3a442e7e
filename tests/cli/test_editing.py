"""``$EDITOR``: what is typed is kept after a mistake, nothing changed is no error, and a missing editor is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]

# the first time a mistake, then its mend: the text of the first time must still be there
_TWICE = r"""#!/bin/sh
if grep -q max_mgs "$1"; then sed -i 's/max_mgs": -1/max_msgs": 7/' "$1"
else sed -i 's/max_msgs"/max_mgs"/' "$1"; fi
"""


@pytest.fixture
def stream(at: Run, unique: str) -> str:
    assert at("stream", "add", unique, "--subjects", unique, "--defaults").status == 0
    return unique


def test_an_edit_with_a_mistake_goes_on(peer: ServerProcess, stream: str, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text(_TWICE)
    editor.chmod(0o755)
    words = ("-s", peer.url, "stream", "edit", stream, "-i")
    with Terminal(*words, environment={"EDITOR": str(editor)}) as terminal:
        terminal.expect('unknown key "max_mgs"; did you mean "max_msgs"?')
        terminal.expect("Edit again? [y/N]: ")
        terminal.calm()
        terminal.send("y")
        terminal.expect("max_msgs  -1 (unlimited)  ->  7")
        terminal.expect(f"Really change stream {stream}? [y/N]: ")
        terminal.calm()
        terminal.send("y")
        assert terminal.status() == 0


def test_nothing_edited_is_nothing_changed(
    at: Run, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "true")
    ran = at("stream", "edit", stream, "-i")
    assert (ran.status, ran.out) == (0, "no difference in configuration\n")
    monkeypatch.setenv("EDITOR", "false")
    assert at("stream", "edit", stream, "-i").status == 1
    monkeypatch.setenv("EDITOR", "no-such-editor")
    ran = at("stream", "edit", stream, "-i")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert "no-such-editor: Editing failed: No such file" in ran.err
