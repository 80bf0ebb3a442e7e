"""What a bare server imports before it serves: each module more is time that every start pays.

Lists of what may be there when the first client is answered, of what JetStream's first answer does
not wait for, and of what must not be there even when everything is loaded. A module that a feature
needs is imported where the feature is used.
"""

import subprocess
import sys

# Before the loading thread starts, beside msgspec's: modules of the standard library and of others, by
# first name.
EARLY = """
    binascii collections contextlib enum errno fcntl functools heapq importlib itertools keyword math
    operator reprlib resource select selectors signal socket threading types warnings
    abc codecs encodings io os site gc sys array builtins marshal posix time pelton cython_runtime
"""

# Each of these costs more than all of the above.
LATE = """
    asyncio uvloop ssl pelton.engine pelton.api json hashlib
"""

# After the first answers of JetStream, which do not wait for these.
LAST = """
    asyncio uvloop ssl logging concurrent subprocess dataclasses zoneinfo urllib ipaddress
"""

# Never, in a server whose settings don't ask for it.
NEVER = """
    cryptography bcrypt websockets prometheus_client email http xml multiprocessing sqlite3
    pydantic yaml tomllib unittest pdb zipfile tarfile shutil tempfile html pkg_resources
    setuptools importlib.metadata
"""

SCRIPT = """
import sys
import msgspec
print(*sys.modules)
from pelton.server import early_start

def serve(self, *parts):
    print(*sorted(sys.modules))
    for load, begin in parts:
        load()
        print(*sorted(sys.modules))
        begin()
        print(*sorted(sys.modules))
    raise SystemExit(0)

early_start.EarlyStart.serve = serve
from pelton.server.__main__ import main
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
    states = [set(line.split()) for line in done.stdout.splitlines()]
    python, early, api, answering, complete, _ = states
    named = {name.partition(".")[0] for name in early - python}
    strange = {name for name in named if not name.startswith("_") and name not in EARLY.split()}
    assert not strange, f"imported before the first client is served: {sorted(strange)}"
    for late in LATE.split():
        assert late not in early
    assert not api & set(LAST.split())
    assert not complete & set(NEVER.split())
    # What the other thread has loaded is enough: the main thread imports nothing.
    assert answering == api
    assert "uvloop" in complete
    assert "pelton.engine" in complete
    # Requests about users, connections and accounts, which every client may send, import nothing.
    assert "pelton.server.system.services" in complete
