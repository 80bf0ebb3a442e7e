"""What a shell completes, with the protocol of each shell's script and in a real bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests import copies

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.cli.conftest import Ran
    from tests.peers import ServerProcess

    Run = Callable[..., Ran]


def completed(line: str, url: str, shell: str = "zsh") -> list[str]:
    """The names that a shell is given at the end of a line."""
    words = line.split(" ")
    environment = {
        **os.environ,
        "NATS_URL": url,
        "_PELTON_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1),
    }
    ran = copies.run(
        [sys.executable, "-m", "pelton.cli"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.stderr, ran.stderr
    lines = ran.stdout.splitlines()
    if shell == "zsh":  # kind, name, help
        return lines[1::3]
    return [each.split(",", 1)[1].split("\t")[0] for each in lines if each]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script(cli: Run, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = cli("completion", shell)
    assert ran.status == 0
    assert f"_PELTON_COMPLETE={shell}_complete" in ran.out
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert cli("completion").out == ran.out
    monkeypatch.setenv("SHELL", "/bin/csh")
    asked = cli("completion")
    assert (asked.status, asked.out) == (2, "")
    assert "bash, zsh, fish" in asked.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_and_options_are_completed(shell: str) -> None:
    nowhere = "nats://127.0.0.1:9"
    assert completed("pelton be", nowhere, shell) == ["bench"]
    assert completed("pelton bench js pub as", nowhere, shell) == ["async"]
    assert completed("pelton str inf", nowhere, shell) == ["info"]
    assert "--throughput" in completed("pelton bench pub x --th", nowhere, shell)
    assert completed("pelton server check strea", nowhere, shell) == ["stream"]
    assert completed("pelton stream info x", nowhere, shell) == []  # no server answers


def test_names_are_completed(at: Run, peer: ServerProcess, unique: str) -> None:
    at("stream", "add", unique, "--subjects", unique, "--defaults")
    at("consumer", "add", unique, f"{unique}c", "--pull", "--defaults")
    at("kv", "add", f"{unique}k")
    at("object", "add", f"{unique}o")
    for words, name in (
        ("stream info", unique),
        (f"consumer info {unique}", f"{unique}c"),
        (f"explain {unique}", f"{unique}c"),
        ("sub --stream", unique),
        ("bench js consume --stream", unique),
        ("kv get", f"{unique}k"),
        ("bench kv get --bucket", f"{unique}k"),
        ("object ls", f"{unique}o"),
    ):
        assert completed(f"pelton {words} {unique}", peer.url) == [name], words


def test_contexts_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Run) -> None:
    assert cli("-s", "nats://127.0.0.1:9", "context", "add", "harbour").status == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for line in ("pelton context select har", "pelton --context har"):
        assert completed(line, "") == ["harbour"], line


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash_completes(cli: Run, tmp_path: Path) -> None:
    script = tmp_path / "complete.sh"
    script.write_text(cli("completion", "bash").out)
    (tmp_path / "pelton").write_text(f'#!/bin/sh\nexec {sys.executable} -m pelton.cli "$@"\n')
    (tmp_path / "pelton").chmod(0o755)
    typed = (
        f"source {script}; COMP_WORDS=(pelton trac); COMP_CWORD=1; "
        '_pelton_completion pelton; echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    ran = subprocess.run(
        ["bash", "-c", typed], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "trace\n"
