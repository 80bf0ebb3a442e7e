"""The services of the system account, and the few services of every account.

An answer is {server, data} or {server, error}; options come as JSON and may select servers. The reports
are those of monitoring. The account of a request determines which services it reaches.
"""

import threading
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

import msgspec

from pelton.core.broker.reactor import Connection
from pelton.core.broker.request_queue import RequestQueue, Work
from pelton.core.broker.router import Router
from pelton.core.protocol.subjects import literal, subset
from pelton.server.clients.timer_wheel import NEVER_NS
from pelton.server.monitor import QueryError, Skip, family
from pelton.server.monitor.encoding import present
from pelton.server.monitor.server_state import account_of, client_of, tag_of
from pelton.server.monitor.slices import Pace, Slices, finish
from pelton.server.settings.users import Permissions
from pelton.server.system.envelope import packed, server_info, written, written_in_slices
from pelton.server.system.events import statsz

if TYPE_CHECKING:
    from pelton.server.system import System

REPORTS = {
    "VARZ": "varz",
    "SUBSZ": "subsz",
    "CONNZ": "connz",
    "ROUTEZ": "routez",
    "GATEWAYZ": "gatewayz",
    "LEAFZ": "leafz",
    "ACCOUNTZ": "accountz",
    "JSZ": "jsz",
    "HEALTHZ": "healthz",
    "EXPVARZ": "expvarz",
    "IPQUEUESZ": "ipqueuesz",
    "RAFTZ": "raftz",
}
_BAD, _FAILED, _BUSY = 400, 500, 503
WAITING_MAX = 64  # requests of one account that no client waits for


class Filter(msgspec.Struct):
    """The servers that a request is for; an empty field means all."""

    server_name: str = ""
    cluster: str = ""
    host: str = ""
    exact_match: bool = False
    tags: list[str] = []
    domain: str = ""


class Cid(msgspec.Struct):
    """The connection that a request is about."""

    cid: int = 0


class Again(msgspec.Struct):
    """A request to reload."""


_ORDERS = (Cid, Again)  # requests that are answered without data


class Request:
    """One request: its reply subject and its content."""

    __slots__ = ("body", "headers", "reply", "router", "source")

    def __init__(
        self, router: Router, source: Connection | None, reply: str, headers: bytes, body: bytes
    ) -> None:
        """`router` is that of the requesting account."""
        self.router = router
        self.source = source
        self.reply = reply
        self.headers = headers
        self.body = body


class Services:
    """Answers requests."""

    def __init__(self, system: "System") -> None:
        """Serves the requests to one server."""
        self._system = system
        self._server_state = system.server_state()
        warn = self._server_state.warn
        self._requests = RequestQueue(
            self._server_state.reactor,
            lambda error: warn(f"a request to the system account failed: {error!r}"),
            WAITING_MAX,
        )

    def ask(
        self, source: Connection | None, subject: str, reply: str, headers: bytes, body: bytes
    ) -> bool:
        """Handle a request in the system account. False: there is no such service."""
        request = Request(self._system.router, source, reply, headers, body)
        words = subject.split(".")
        if words[0] == "$JS":
            self._purge(request, words[-1])
        elif subject == "$SYS.DEBUG.SUBSCRIBERS":
            self._count_subscribers(request)
        elif words[2] == "SERVER":
            return self._server(request, words[3:])
        elif words[2] == "ACCOUNT":
            return self._account(request, words[3], words[4])
        else:
            self._user(request)
        return True

    def ask_from(
        self,
        account: str,
        router: Router,
        source: Connection | None,
        subject: str,
        reply: str,
        headers: bytes,
        body: bytes,
    ) -> bool:
        """Handle a request of another account; it concerns that account only."""
        request = Request(router, source, reply, headers, body)
        if subject == "$SYS.REQ.USER.INFO":
            self._user(request)
            return True
        return self._account(request, account, subject.rpartition(".")[2])

    # -- about the server

    def _server(self, request: Request, words: list[str]) -> bool:
        name = words[1] if len(words) > 1 else "STATSZ"
        if name in REPORTS:
            self._report(request, REPORTS[name])
            return True
        own = words[0] == self._system.server_id
        others: dict[str, Callable[[Request], None]] = {
            "STATSZ": self._statsz,
            "IDZ": self._identity,
            "PROFILEZ": self._profile,
        }
        if own:
            others |= {"RELOAD": self._reload, "KICK": self._kick, "LDM": self._lame_duck}
        if name not in others:
            return False
        others[name](request)
        return True

    def _report(self, request: Request, name: str) -> None:
        module = family(name)
        self._answer(
            request, module.Options, lambda options: module.report(self._server_state, options)
        )

    def _statsz(self, request: Request) -> None:
        if not request.reply:
            self._system.events.statistics()
            return
        try:
            if self._filtered(request):
                return
        except msgspec.DecodeError as problem:
            self._send(request, _error(_BAD, str(problem)))
            return
        self._send_plain(request, statsz(self._server_state))

    def _identity(self, request: Request) -> None:
        server_state = self._server_state
        user = {
            "name": server_state.server_name,
            "host": server_state.host,
            "id": server_state.server_id,
        }
        self._send_plain(request, user)

    def _reload(self, request: Request) -> None:
        def reload(_: object) -> None:
            problem = self._system.actions.reload_configuration()
            if problem:
                raise QueryError(problem)

        self._answer(request, Again, reload)

    def _kick(self, request: Request) -> None:
        def kick(asked: Cid) -> None:
            if not self._system.actions.disconnect_client(asked.cid):
                raise QueryError("no such client or leafnode id")

        self._answer(request, Cid, kick)

    def _lame_duck(self, request: Request) -> None:
        def tell(asked: Cid) -> None:
            problem = self._system.actions.send_lame_duck(asked.cid)
            if problem:
                raise QueryError(problem)

        self._answer(request, Cid, tell)

    def _profile(self, request: Request) -> None:
        """A CPU profile takes its full duration: a thread makes it, and the event loop's thread
        sends it.
        """
        from pelton.server.monitor import profile

        def make(options: profile.Options) -> dict[str, Any]:
            if options.name != "cpu" or profile.refusal(options):
                return profile.report(self._server_state, options)
            body: dict[str, Any] = {}
            later = self._system.later

            def run() -> None:
                body.update(profile.report(self._server_state, options))
                later(lambda: self._send(request, {"data": body}))

            threading.Thread(target=run, name="profile", daemon=True).start()
            raise Skip

        self._answer(request, profile.Options, make)

    # -- about an account

    def _account(self, request: Request, account: str, name: str) -> bool:
        server_state = self._server_state
        if name == "SUBSZ":
            subsz = family("subsz")
            self._answer(
                request,
                subsz.Options,
                lambda o: subsz.report(server_state, _with(o, account=account, subscriptions=True)),
            )
        elif name == "CONNZ":
            connz = family("connz")
            self._answer(
                request, connz.Options, lambda o: connz.report(server_state, _with(o, acc=account))
            )
        elif name == "LEAFZ":
            leafz = family("leafz")
            self._answer(
                request,
                leafz.Options,
                lambda o: leafz.report(server_state, _with(o, account=account)),
            )
        elif name == "JSZ":
            jsz = family("jsz")
            self._answer(request, jsz.Options, lambda o: jsz.one_account(server_state, account, o))
        elif name == "INFO":
            accountz = family("accountz")
            self._answer(request, Filter, lambda o: accountz.details(server_state, account))
        elif name == "STATZ":
            self._account_statistics(request, account)
        elif name == "CONNS":
            self._account_connections(request, account)
        else:
            return False
        return True

    def _account_statistics(self, request: Request, account: str) -> None:
        accstatz = family("accstatz")

        def report(options: Any) -> Slices[dict[str, Any]]:
            if account != "PING":
                options.accounts = [account]
            found: dict[str, Any] = yield from accstatz.report(self._server_state, options)
            if not found["account_statz"] and not options.include_unused:
                raise Skip
            return found

        self._answer(request, accstatz.Options, report)

    def _account_connections(self, request: Request, name: str) -> None:
        account = self._server_state.account(name)
        if account is None or not request.reply:
            return
        answer = self._system.events.account_answer(account)
        if answer is not None:
            request.router.publish_message(request.reply, answer)

    def _user(self, request: Request) -> None:
        client = client_of(request.source) if request.source is not None else None
        if client is None:
            self._send(request, {"error": {"code": _BAD}})
            return
        admitted = client.admitted
        data: dict[str, Any] = {"user": client.user, "account": client.account_name}
        data |= present(
            account_name=tag_of(client.account),
            user_name=admitted.name_tag if admitted is not None else "",
            permissions=_permissions(admitted.permissions) if admitted is not None else None,
            expires=client.expires_ns - self._server_state.now_ns
            if client.expires_ns < NEVER_NS
            else 0,
        )
        self._send(request, {"data": data})

    def _count_subscribers(self, request: Request) -> None:
        words = request.body.decode("utf-8", "replace").strip().split(" ")
        subject, queue = words[0], (words[1].encode() if len(words) > 1 else None)

        def count() -> Work:
            router = request.router
            number = 0
            if literal(subject):
                number = sum(queue in (None, each.queue) for each in router.matching(subject))
            elif subject:
                number = yield from self._overlapped(subject.encode(), queue)
            router.publish_message(request.reply, str(number).encode())

        if request.reply:
            self._requests.submit(request.router, request.source, count())

    def _overlapped(self, wanted: bytes, queue: bytes | None) -> Slices[int]:
        """The subscriptions of the system account that the subject covers."""
        pace, number = Pace(), 0
        for connection in self._server_state.reactor.all_connections():
            if pace.over():
                yield
            if account_of(connection) != self._server_state.system_account:
                continue
            for each in connection.all_subscriptions():
                if pace.over():
                    yield
                number += subset(each.subject, wanted) and queue in (None, each.queue)
        return number

    def _purge(self, request: Request, account: str) -> None:
        kind = "io.nats.jetstream.api.v1.account_purge_response"
        problem = self._system.actions.purge_account(account)
        body: dict[str, Any] = {"type": kind}
        if problem:
            body["error"] = {"code": _FAILED, "err_code": 10051, "description": problem}
        else:
            body["initiated"] = True
        self._send_whole(request, body)
        subject = f"$JS.API.ACCOUNT.PURGE.{account}"
        self._system.actions.audit(subject, request.body, written(body))

    # -- answers

    def _filtered(self, request: Request) -> bool:
        """Whether the request is for other servers. Raises msgspec.DecodeError."""
        if not request.body:
            return False
        wanted = msgspec.json.decode(request.body, type=Filter)
        server_state, settings = self._server_state, self._server_state.settings
        for asked, own in (
            (wanted.server_name, server_state.server_name),
            (wanted.host, server_state.host),
            (wanted.cluster, ""),
        ):
            if asked and (asked != own if wanted.exact_match else asked not in own):
                return True
        if any(tag not in settings.server_tags for tag in wanted.tags):
            return True
        return bool(wanted.domain) and wanted.domain != settings.domain

    def _answer(self, request: Request, kind: Any, report: Callable[[Any], Any]) -> None:
        """Send {server, data} or {server, error}; nothing when the request is for another server."""
        if not request.reply:
            return
        try:
            if self._filtered(request):
                return
            options = msgspec.json.decode(request.body, type=kind) if request.body else kind()
        except msgspec.DecodeError as problem:
            self._send(request, _error(_BAD, str(problem)))
            return
        work = self._carry_out(request, report, options, {} if kind in _ORDERS else {"data": None})
        if kind in _ORDERS:
            finish(work)
        elif not self._requests.submit(request.router, request.source, work):
            text = "too many requests of this account wait for their answers"
            self._send(request, _error(_BUSY, text))

    def _carry_out(
        self, request: Request, report: Callable[[Any], Any], options: Any, head: dict[str, Any]
    ) -> Work:
        try:
            data = report(options)
            if isinstance(data, Generator):
                data = yield from data
            body = {} if data is None else {"data": data}
        except Skip:
            return
        except QueryError as problem:
            body = head | _error(_FAILED, str(problem))
        whole = {"server": server_info(self._server_state)} | body
        plain = yield from written_in_slices(whole)
        headers, written = yield from packed(plain, request.headers)
        request.router.publish_message(request.reply, written, headers=headers)

    def _send_plain(self, request: Request, body: dict[str, Any]) -> None:
        """Send an answer without compression."""
        if request.reply:
            request.router.publish_message(request.reply, written(body))

    def _send(self, request: Request, body: dict[str, Any]) -> None:
        self._send_whole(request, {"server": server_info(self._server_state)} | body)

    def _send_whole(self, request: Request, body: dict[str, Any]) -> None:
        if request.reply:
            headers, data = finish(packed(written(body), request.headers))
            request.router.publish_message(request.reply, data, headers=headers)


def _error(code: int, description: str) -> dict[str, Any]:
    return {"error": {"code": code, "description": description}}


def _with(options: Any, **fields: Any) -> Any:
    return msgspec.structs.replace(options, **fields)


def _permissions(rules: Permissions | None) -> dict[str, Any]:
    """The permissions of a user, in the form of the answer."""
    if rules is None:
        return {}
    body: dict[str, Any] = {
        name: present(allow=each.allow, deny=each.deny)
        for name, each in (("publish", rules.publish), ("subscribe", rules.subscribe))
    }
    if rules.responses is not None:
        body["responses"] = {"max": rules.responses.max, "ttl": rules.responses.expires_ns}
    return body
