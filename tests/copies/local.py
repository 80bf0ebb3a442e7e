"""The server of `pelton.testing`, started as a copy."""

from __future__ import annotations

import subprocess
from typing import IO

from pelton.testing import LocalServer as PlainServer
from tests import copies


class LocalServer(PlainServer):
    """A `pelton.testing.LocalServer`, for tests that are not about it."""

    def _started(self, command: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
        return copies.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
