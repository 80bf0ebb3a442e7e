"""What a bare server imports before it serves: each module more is time that every start pays.

Two lists: what may be there when the first client is answered, and what must not be there even
when everything is loaded. A module that a feature needs is imported where the feature is used.
"""

import subprocess
import sys

# Before the loading thread starts: modules of the standard library and of others, by first name.
EARLY = """
    binascii collections contextlib enum errno fcntl functools heapq importlib itertools keyword math
    operator reprlib resource select selectors signal socket threading types warnings
    abc codecs encodings io os site gc sys array builtins marshal posix time penstock cython_runtime
"""

# Each of these costs more than all of the above.
LATE = """
    asyncio uvloop ssl penstock.engine penstock.api msgspec dataclasses inspect typing re json hashlib
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
from penstock.server import early_start

def serve(self, for_connect, load):
    before = sorted(sys.modules)
    for_connect()
    load()
    print(*before)
    print(*sorted(sys.modules))
    raise SystemExit(0)

early_start.EarlyStart.serve = serve
from penstock.server.__main__ import main
main(["-a", "127.0.0.1", "-p", "-1", "-js", "-sd", sys.argv[1]])
"""


def test_a_bare_start_imports_what_is_listed_only(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    python, early, complete = (set(line.split()) for line in done.stdout.splitlines())
    named = {name.partition(".")[0] for name in early - python}
    strange = {name for name in named if not name.startswith("_") and name not in EARLY.split()}
    assert not strange, f"imported before the first client is served: {sorted(strange)}"
    for late in LATE.split():
        assert late not in early
    assert not complete & set(NEVER.split())
    assert "uvloop" in complete
    assert "penstock.engine" in complete
