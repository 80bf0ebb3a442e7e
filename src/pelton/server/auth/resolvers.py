"""Account resolvers in memory and over HTTP; `folder_resolver` has those with a folder."""

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pelton.server.auth.passwords import RunOnLoop

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

BYTES_MAX = 1024 * 1024
_THREADS = 4


class MemoryResolver:
    """The JWTs of ``resolver_preload``, and those stored while the server runs."""

    def __init__(self, preload: dict[str, str]) -> None:
        """`preload`: account key to JWT."""
        self.tokens = dict(preload)

    def fetch(self, account: str, answer: Callable[[str | None], None]) -> None:
        """Answer at once."""
        answer(self.tokens.get(account))

    def store(self, account: str, token: str) -> None:
        """Keep the JWT until the server ends."""
        self.tokens[account] = token

    def close(self) -> None:
        """Nothing to close."""


class UrlResolver:
    """An account server: ``GET <url>/<account>`` gives the JWT. Requests run in threads;
    simultaneous requests for one account share one GET.
    """

    def __init__(
        self, url: str, timeout_ns: int, run_on_loop: RunOnLoop, report: Callable[[str], object]
    ) -> None:
        """ValueError when the url is not http or https."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"an account resolver's URL is http:// or https://, not {url!r}")
        self._url = url if url.endswith("/") else f"{url}/"
        self._timeout = timeout_ns / 1_000_000_000
        self._run_on_loop = run_on_loop
        self._report = report
        self._pool: ThreadPoolExecutor | None = None
        self._waiting: dict[str, list[Callable[[str | None], None]]] = {}

    def fetch(self, account: str, answer: Callable[[str | None], None]) -> None:
        """Answer later, from a thread's result."""
        waiting = self._waiting.setdefault(account, [])
        waiting.append(answer)
        if len(waiting) > 1:
            return
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(_THREADS, "resolver")
        future = self._pool.submit(_get, f"{self._url}{account}", self._timeout)
        future.add_done_callback(lambda done: self._run_on_loop(lambda: self._came(account, done)))

    def _came(self, account: str, done: "Future[str]") -> None:
        problem = done.exception()
        if problem is not None:
            self._report(f"Cannot fetch the JWT of account {account}: {problem}")
        for answer in self._waiting.pop(account, []):
            answer(None if problem is not None else done.result())

    def store(self, account: str, token: str) -> None:
        """Not supported: JWTs are written to an account server by other means."""
        raise ValueError("store operation not supported for URL Resolver")

    def close(self) -> None:
        """Wait for no further answers."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)


def _get(url: str, timeout_s: float) -> str:
    """Runs in a thread."""
    from urllib.request import urlopen

    # The scheme was checked when the resolver was made.
    with urlopen(url, timeout=timeout_s) as response:
        if response.status != 200:
            raise ValueError(f"HTTP status {response.status}")
        found: bytes = response.read(BYTES_MAX + 1)
    if len(found) > BYTES_MAX:
        raise ValueError("the answer is too large")
    return found.decode("ascii").strip()
