"""What is missing on a machine is named, with the line that installs it there."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECK = Path(__file__).parents[1] / "tools" / "check-machine"
DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nNAME="Debian GNU/Linux"\nVERSION_ID="13"\nID=debian\n'
UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.3 LTS"\nNAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian\n'
MINT = 'NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n'
FEDORA = 'NAME="Fedora Linux"\nVERSION="43 (Server Edition)"\nID=fedora\nVERSION_ID=43\n'
ROCKY = 'NAME="Rocky Linux"\nID="rocky"\nID_LIKE="rhel centos fedora"\n'
ALPINE = 'NAME="Alpine Linux"\nID=alpine\nVERSION_ID=3.22.2\n'
OTHER = "NAME=Void\nID=void\n"
# A Python without a venv module and headers, as some systems have it.
BARE = """#!/bin/sh
case $2 in
    *ensurepip*) exit 1 ;;
    *sysconfig*) echo /nowhere ;;
    *) exec {python} "$@" ;;
esac
"""


def check(tmp_path: Path, release: str | None, python: str, cc: str) -> tuple[int, list[str]]:
    file = tmp_path / "os-release"
    if release is not None:
        file.write_text(release)
    done = subprocess.run(
        [CHECK, python, file],
        env={"PATH": "/usr/bin:/bin", "CC": cc},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


@pytest.fixture
def bare(tmp_path: Path) -> str:
    path = tmp_path / "python"
    path.write_text(BARE.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("release", "line"),
    [
        (DEBIAN, "apt-get install python3-venv gcc libc6-dev python3-dev"),
        (UBUNTU, "apt-get install python3-venv gcc libc6-dev python3-dev"),
        (MINT, "apt-get install python3-venv gcc libc6-dev python3-dev"),
        (FEDORA, "dnf install python3 gcc glibc-devel python3-devel"),
        (ROCKY, "dnf install python3 gcc glibc-devel python3-devel"),
        (ALPINE, "apk add python3 gcc musl-dev python3-dev"),
    ],
)
def test_all_that_is_missing_is_one_line_to_type(
    tmp_path: Path, bare: str, release: str, line: str
) -> None:
    assert check(tmp_path, release, bare, "no-such-compiler") == (
        1,
        [
            f"missing: the venv module of {bare}",
            "missing: a C compiler (no-such-compiler)",
            f"missing: the headers of {bare} (/nowhere/Python.h)",
            f"to install it, as root: {line}",
        ],
    )


@pytest.mark.parametrize("release", [OTHER, None])
def test_another_system_gets_the_names_of_debian(
    tmp_path: Path, bare: str, release: str | None
) -> None:
    _, lines = check(tmp_path, release, bare, "no-such-compiler")
    assert lines[-1] == (
        "install it as your system does; Debian's packages are: python3-venv gcc libc6-dev python3-dev"
    )


@pytest.mark.parametrize("python", ["", "/no/such/python"])
def test_without_python_there_is_one_thing_to_do(tmp_path: Path, python: str) -> None:
    assert check(tmp_path, FEDORA, python, "gcc") == (
        1,
        [
            "missing: Python 3.11 or newer (or name one: make PYTHON=/path/to/python3)",
            "to install it, as root: dnf install python3 python3-devel",
        ],
    )


def test_a_python_that_is_too_old_is_none(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    code, lines = check(tmp_path, ALPINE, str(old), "gcc")
    assert (code, lines[-1]) == (1, "to install it, as root: apk add python3 python3-dev")


def test_the_headers_of_the_c_library_are_missed(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    code, lines = check(tmp_path, ALPINE, sys.executable, str(compiler))
    assert code == 1
    assert lines[-2:] == [
        "missing: the C library's headers",
        "to install it, as root: apk add musl-dev",
    ]


def test_this_machine_has_everything() -> None:
    subprocess.run([CHECK, sys.executable], check=True, timeout=60)
