"""The archive for a cluster: what is in it, and importing from it, without a JVM."""

import json
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import pytest

import pelton
from pelton.cli.__main__ import main
from pelton.core.libraries import LIBRARIES
from pelton.spark import unpacking
from pelton.spark.packaging import PackagingError, package

# Nothing of Python's own folders of packages but what Spark brings: as on a machine of a cluster.
PROGRAM = """
import sys
sys.path = [part for part in sys.path if not part.endswith("site-packages")]
import pelton.spark.parsing, pelton.core.protocol.wire, pelton.api, pyspark_jetstream
import msgspec, json
print(json.dumps([pelton.__version__, pelton.spark.parsing.__file__,
    pelton.core.protocol.wire.__file__, msgspec.__file__, pyspark_jetstream.__file__]))
"""


def run(path, temporary, program=PROGRAM):
    return subprocess.run(
        [sys.executable, "-S", "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(path), "TMPDIR": str(temporary)},
        cwd=temporary,
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    return package(tmp_path_factory.mktemp("archive") / "pelton.zip").path


def test_every_module_is_in_it(archive):
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        names = set(opened.namelist())
    home = Path(pelton.__file__).parent
    for file in home.rglob("*.py"):
        assert f"pelton/{file.relative_to(home).as_posix()}" in names
    for library in LIBRARIES:
        assert f"pelton/core/{library}.{unpacking.this_python()}.so" in names
    assert "pelton/spark/log4j2.properties" in names
    assert {n for n in names if n.startswith("pyspark_")} == {
        f"{folder.name}/__init__.py" for folder in home.parent.glob("pyspark_jetstream*")
    }
    assert not any(name.endswith((".pyx", ".c", ".pyc", ".pxd")) for name in names)


def test_the_same_installation_makes_the_same_archive(archive, tmp_path):
    again = package(tmp_path / "again.zip")
    assert again.path.read_bytes() == archive.read_bytes()
    assert again.bytes == archive.stat().st_size
    assert list(tmp_path.iterdir()) == [again.path]


def test_importing_from_the_archive(archive, tmp_path):
    done = run(archive, tmp_path)
    assert done.returncode == 0, done.stderr
    version, *files, discovered = json.loads(done.stdout)
    assert version == pelton.__version__
    [folder] = (tmp_path / f"pelton-{os.getuid()}").iterdir()
    assert all(Path(file).is_relative_to(folder) for file in files)
    assert Path(discovered).is_relative_to(archive)
    assert folder.parent.stat().st_mode & 0o777 == 0o700


def test_importing_from_the_unpacked_archive(archive, tmp_path):
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path / "here")
    done = run(tmp_path / "here", tmp_path)
    assert done.returncode == 0, done.stderr
    assert all(Path(f).is_relative_to(tmp_path / "here") for f in json.loads(done.stdout)[1:])
    assert [found.name for found in tmp_path.iterdir()] == ["here"]


def test_many_processes_unpack_at_once(archive, tmp_path):
    """Each has a whole archive, from whoever was first; no draft is left over."""
    folders = []
    threads = [
        threading.Thread(target=lambda: folders.append(unpacking.unpacked(archive, tmp_path)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 6
    assert list(tmp_path.iterdir()) == [folders[0]]
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            assert (folders[0] / name).read_bytes() == opened.read(name)


def test_another_python(archive, tmp_path):
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(archive) as opened, zipfile.ZipFile(other, "w") as changed:
        for name in opened.namelist():
            of_another = name == unpacking.MADE_FOR
            changed.writestr(name, b"cpython-399-vax" if of_another else opened.read(name))
    done = run(other, tmp_path)
    last = done.stderr.splitlines()[-1]
    here = unpacking.this_python()
    assert last == f"ImportError: {other} is for cpython-399-vax, and this Python is {here}"


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_a_folder_of_somebody_else_is_not_used(archive, tmp_path, kind):
    folder = tmp_path / f"pelton-{os.getuid()}"
    if kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        folder.write_text("")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    done = run(archive, tmp_path)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {archive} cannot be unpacked: {folder} is not a folder")
    assert not (tmp_path / "elsewhere").exists() or not any((tmp_path / "elsewhere").iterdir())


def test_a_damaged_archive(archive, tmp_path):
    damaged = tmp_path / "damaged.zip"
    data = bytearray(archive.read_bytes())
    with zipfile.ZipFile(archive) as opened:
        entry = opened.getinfo("pelton_needs/msgspec/__init__.py")
    middle = entry.header_offset + 60 + len(entry.filename) + entry.compress_size // 2
    data[middle] ^= 0xFF
    damaged.write_bytes(data)
    done = run(damaged, tmp_path)
    assert done.stderr.splitlines()[-1].startswith(f"ImportError: {damaged} cannot be unpacked: ")
    assert not list((tmp_path / f"pelton-{os.getuid()}").iterdir())


def test_more_distributions(tmp_path):
    made = package(tmp_path / "more.zip", ["py4j", "MSGSPEC"])
    assert [text.split()[0] for text in made.contains] == ["pelton", "msgspec", "py4j"]
    with zipfile.ZipFile(made.path) as opened:
        assert "pelton_needs/py4j/java_gateway.py" in opened.namelist()
    with pytest.raises(PackagingError, match="no-such-thing is not installed here"):
        package(tmp_path / "none.zip", ["no-such-thing"])
    assert not (tmp_path / "none.zip").exists()


def test_the_command(tmp_path, capsys, archive):
    out = tmp_path / "pelton.zip"
    assert main(["spark", "package", str(out)]) == 0
    assert unpacking.this_python() in capsys.readouterr().out
    assert main(["spark", "package", str(out), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["bytes"] == out.stat().st_size
    assert out.read_bytes() == archive.read_bytes()
    assert main(["spark", "package", str(out), "--with", "no-such-thing"]) == 1
    assert main(["spark", "package", str(tmp_path / "x.tar")]) == 2
    assert main(["spark", "package", str(tmp_path / "no" / "x.zip")]) == 1
    for line in capsys.readouterr().err.splitlines():
        assert line.startswith("pelton: ")
