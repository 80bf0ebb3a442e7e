"""The wheel without compiled modules, which is for systems that no other wheel is for."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_a_wheel_without_compiled_modules_has_a_client(tmp_path: Path) -> None:
    source, wheels, unpacked = tmp_path / "source", tmp_path / "wheels", tmp_path / "unpacked"
    source.mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    made = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=made)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels)]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *options, str(source)],
        check=True,
        env=os.environ | {"PELTON_PURE": "1"},
    )
    [wheel] = wheels.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(unpacked)
    assert not [path for path in unpacked.rglob("*") if path.suffix in {".so", ".pyd", ".c"}]
    program = (
        "from pelton import connect\n"
        "from pelton.sync import connect\n"
        "from pelton.core.protocol import wire\n"
        "print(wire.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(unpacked), "PELTON_PURE": "0"},
    )
    assert done.stdout.strip() == str(unpacked / "pelton" / "core" / "plain" / "wire.py")
