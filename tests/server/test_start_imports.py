"""What a bare server imports before it serves: each module more is time that every start pays.

Two lists: what may be there when the first client is answered, and what must not be there even
when everything is loaded. A module that a feature needs is imported where the feature is used.
"""

import subprocess
import sys

# Before the loading thread starts: modules of the standard library and of others, by first name.
EARLY = """
    argparse base64 binascii bisect calendar collections contextlib copy copyreg dataclasses
    datetime decimal dis ast enum errno fcntl functools genericpath hashlib heapq hmac inspect
    importlib itertools json keyword linecache locale math msgspec numbers numpy opcode operator
    platform posixpath re reprlib resource select selectors signal socket stat string struct
    textwrap threading time token tokenize traceback types typing typing_extensions uuid warnings
    weakref zipimport abc codecs encodings io os site sre_compile sre_constants sre_parse runpy
    gc sys array builtins marshal posix penstock cython_runtime
"""

# Never, in a server whose settings don't ask for it.
NEVER = """
    cryptography bcrypt websockets prometheus_client email http xml multiprocessing sqlite3
    pydantic yaml tomllib unittest pdb zipfile tarfile shutil tempfile html pkg_resources
    setuptools importlib.metadata
"""

SCRIPT = """
import sys
print(*sys.modules)
from penstock.server import opening

def serve(self, load):
    before = sorted(sys.modules)
    load()
    print(*before)
    print(*sorted(sys.modules))
    raise SystemExit(0)

opening.Opening.serve = serve
from penstock.server.__main__ import main
main(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", sys.argv[1]])
"""


def test_a_bare_start_imports_what_is_listed_only(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    python, early, complete = (set(line.split()) for line in done.stdout.splitlines())
    named = {name.partition(".")[0] for name in early - python}
    strange = {name for name in named if not name.startswith("_") and name not in EARLY.split()}
    assert not strange, f"imported before the first client is served: {sorted(strange)}"
    for late in ("asyncio", "uvloop", "ssl", "penstock.engine", "penstock.api"):
        assert late not in early
    assert not complete & set(NEVER.split())
    assert "uvloop" in complete
    assert "penstock.engine" in complete
