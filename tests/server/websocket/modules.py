"""The official JavaScript clients: a folder ``node_modules`` with nats.ws, @nats-io/nats-core and
@nats-io/jetstream, which `make test` has npm bring into .venv/js-client, or which PELTON_NODE_MODULES names.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest


def need_modules(*names: str) -> Path:
    """The folder, or the test is skipped with what is missing."""
    brought = Path(sys.prefix) / "js-client" / "node_modules"
    folder = Path(os.environ.get("PELTON_NODE_MODULES", brought)).absolute()
    missing = [name for name in names if not (folder / name).is_dir()]
    if missing:
        pytest.skip(
            f"{', '.join(missing)} not in {folder}: npm install them somewhere and name that "
            "folder's node_modules in PELTON_NODE_MODULES"
        )
    return folder


def need_program(*names: str) -> str:
    """The first of these programs that is here, or the test is skipped."""
    for name in names:
        found = shutil.which(name)
        if found is not None:
            return found
    pytest.skip(f"{' or '.join(names)} not found")
