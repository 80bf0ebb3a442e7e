"""The compiled modules: which library each is in, that it comes from there, and that it is itself."""

import importlib
import importlib.util
import pickle
import pkgutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import pelton.core
from pelton.core.libraries import LIBRARIES, PORTABLE, Finder, library_of

CORE = Path(pelton.core.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(CORE).with_suffix("").parts) for path in CORE.glob("*/*.pyx")
)


def test_a_library_has_one_module_of_a_name() -> None:
    """The function that makes a module is called as its last name, and has to be the only one."""
    names = Counter((library_of(module), module.rpartition(".")[2]) for module in MODULES)
    assert [name for name, count in names.items() if count > 1] == []


def test_the_portable_modules_are_there() -> None:
    assert {*MODULES, "_portable", "_shared"} >= PORTABLE
    assert {library_of(module) for module in MODULES} == set(LIBRARIES)


def test_a_folder_has_the_libraries_and_no_module_of_its_own() -> None:
    suffix = Path(importlib.import_module("pelton.core.log.log").__file__ or "").name
    suffix = suffix.removeprefix("_linux")
    assert {path.name for path in CORE.rglob(f"*{suffix}")} == {
        f"{library}{suffix}" for library in LIBRARIES
    }


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_itself(name: str) -> None:
    module = importlib.import_module(f"pelton.core.{name}")
    assert module.__name__ == f"pelton.core.{name}"
    assert Path(module.__file__ or "").name.startswith(f"{library_of(name)}.")
    assert module.__spec__ is not None
    assert module.__spec__.origin == module.__file__


def test_everything_in_the_package_can_be_imported() -> None:
    found = [each.name for each in pkgutil.walk_packages(pelton.core.__path__, "pelton.core.")]
    assert {f"pelton.core.{library}" for library in LIBRARIES} <= {*found}
    for name in found:
        importlib.import_module(name)


def test_classes_are_pickled_by_their_own_names() -> None:
    from pelton.core.protocol.wire import BAD_OP, Parser, WireError

    assert pickle.loads(pickle.dumps(Parser)) is Parser
    assert type(WireError(BAD_OP, [])).__module__ == "pelton.core.protocol.wire"


def test_a_traceback_names_the_line_of_the_source() -> None:
    from pelton.core.protocol.headers import encode_headers

    with pytest.raises(ValueError, match="not a header key") as raised:
        encode_headers({"a:b": "c"})
    last = raised.traceback[-1]
    assert str(last.path).endswith("core/protocol/headers.pyx")
    lines = (CORE / "protocol" / "headers.pyx").read_text().splitlines()
    assert "not a header key" in lines[last.lineno]


def test_what_is_no_module_is_not_found() -> None:
    with pytest.raises(ImportError, match="PyInit_nothing"):
        importlib.import_module("pelton.core.log.nothing")
    finder = Finder(str(CORE), pure=False)
    assert finder.find_spec("pelton.cli.log") is None
    assert finder.find_spec("pelton.core") is None


def test_a_client_loads_the_portable_library_alone() -> None:
    program = (
        "import sys, pelton.client, pelton.client.sync\n"
        "print(*sorted({m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "_portable." in done.stdout
    assert "_linux." not in done.stdout
