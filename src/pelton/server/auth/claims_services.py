"""The requests to the system account that look up, list, update and delete account JWTs, as ``nsc push``,
``nsc pull`` and other servers send them.

    $SYS.REQ.CLAIMS.UPDATE   .LIST   .PACK   .DELETE
    $SYS.REQ.ACCOUNT.<account>.CLAIMS.LOOKUP   .UPDATE      (and the older $SYS.ACCOUNT.<account>...)
"""

from collections.abc import Callable

import msgspec

from pelton.core.broker.reactor import Connection
from pelton.core.broker.request_queue import RequestQueue, Work
from pelton.core.broker.router import CallbackSink, Router
from pelton.nkeys import ACCOUNT, is_public
from pelton.server.auth.claims import AccountClaims, GenericClaims
from pelton.server.auth.folder_resolver import FolderError, FolderResolver
from pelton.server.auth.jwt import JwtError, decode
from pelton.server.auth.operator import OperatorMode
from pelton.server.auth.resolvers import MemoryResolver

READ_AT_ONCE = 20  # JWTs that are read and sent in one turn
_OK, _FAILED = 200, 500


class ClaimsServices:
    """Answers requests on the system account's router."""

    def __init__(
        self,
        router: Router,
        operator: OperatorMode,
        server: Callable[[], dict[str, object]],
        system_account: str,
        requests: RequestQueue,
    ) -> None:
        """`server` is the description of this server in each answer; `requests` makes long ones."""
        self._requests = requests
        self._router = router
        self._operator = operator
        self._server = server
        self._system = system_account
        self._resolver = operator.resolver
        self._listen("$SYS.REQ.ACCOUNT.*.CLAIMS.UPDATE", self._update_one)
        self._listen("$SYS.ACCOUNT.*.CLAIMS.UPDATE", self._update_one)
        if isinstance(self._resolver, FolderResolver):
            self._listen("$SYS.REQ.CLAIMS.UPDATE", self._update)
            self._listen("$SYS.REQ.ACCOUNT.*.CLAIMS.LOOKUP", self._look_up)
            self._listen("$SYS.REQ.CLAIMS.LIST", self._list)
            self._listen("$SYS.REQ.CLAIMS.PACK", self._pack)
            self._listen("$SYS.REQ.CLAIMS.DELETE", self._delete)

    def _listen(self, subject: str, call: Callable[[str, str, bytes], None]) -> None:
        def take(
            connection: Connection | None, subject: str, reply: str, headers: bytes, payload: bytes
        ) -> bool:
            call(subject, reply, payload)
            return True

        self._router.attach(subject, CallbackSink(take))

    def _send(self, reply: str, payload: bytes) -> None:
        if reply:
            self._router.publish_message(reply, payload)

    def _respond(self, reply: str, account: str, message: str, problem: object = None) -> None:
        fields: dict[str, object] = {"account": account} if account else {}
        if problem is None:
            answer = {"data": {**fields, "code": _OK, "message": message}}
        else:
            described = f"{message} - {problem}"
            answer = {"error": {**fields, "code": _FAILED, "description": described}}
        self._send(reply, msgspec.json.encode({"server": self._server(), **answer}))

    # -- updates

    def _update_one(self, subject: str, reply: str, payload: bytes) -> None:
        tokens = subject.split(".")
        self._take(tokens[-3], reply, payload)

    def _update(self, subject: str, reply: str, payload: bytes) -> None:
        self._take("", reply, payload)

    def _take(self, account: str, reply: str, payload: bytes) -> None:
        failed = "jwt update resulted in error"
        try:
            token = payload.decode("ascii").strip()
            claims = decode(token, AccountClaims)
        except (JwtError, UnicodeDecodeError) as problem:
            self._respond(reply, "n/a", failed, problem)
            return
        found = account or claims.sub
        operator = self._operator
        owners = {each.sub: each.nats.strict_signing_key_usage for each in operator.operators}
        if claims.sub != found:
            self._respond(reply, found, failed, "subject does not match jwt content")
        elif owners.get(claims.iss):
            self._respond(reply, found, failed, "operator requires issuer to be a signing key")
        elif claims.iss not in operator.trusted:
            self._respond(reply, found, failed, "account JWT is not signed by a trusted operator")
        elif problem_text := next(claims.problems(), ""):
            self._respond(
                reply, found, "jwt validation failed", f"validation errors: [{problem_text}]"
            )
        else:
            self._keep(found, token, reply)

    def _keep(self, account: str, token: str, reply: str) -> None:
        loaded = account in self._operator.records
        resolver = self._resolver
        caching = not isinstance(resolver, FolderResolver) or resolver.cache
        if caching and not loaded:
            self._respond(reply, account, "jwt update cache skipped")
            return
        try:
            if isinstance(resolver, FolderResolver | MemoryResolver):
                resolver.store(account, token)
            if loaded:
                self._operator.take(token)
        except (OSError, FolderError, JwtError) as problem:
            self._respond(reply, account, "jwt update resulted in error", problem)
            return
        cache = isinstance(resolver, FolderResolver) and resolver.cache
        self._respond(reply, account, "jwt updated cache" if cache else "jwt updated")

    # -- questions

    def _look_up(self, subject: str, reply: str, payload: bytes) -> None:
        self._resolver.fetch(
            subject.split(".")[3], lambda token: self._send(reply, (token or "").encode())
        )

    def _list(self, subject: str, reply: str, payload: bytes) -> None:
        answer = {"server": self._server(), "data": self._folder.accounts()}
        self._send(reply, msgspec.json.encode(answer))

    def _pack(self, subject: str, reply: str, payload: bytes) -> None:
        """Send all JWTs, one per message, then an empty message. When the requester has the same
        JWTs, send only the empty message.
        """

        def send_all() -> Work:
            for number, (account, token) in enumerate(self._folder.all(), 1):
                self._send(reply, f"{account}|{token}".encode())
                if number % READ_AT_ONCE == 0:
                    yield
            self._send(reply, b"")

        if payload == self._folder.digest():
            self._send(reply, b"")
        else:
            self._requests.submit(self._router, None, send_all())

    def _delete(self, subject: str, reply: str, payload: bytes) -> None:
        operator = ""
        try:
            claims = decode(payload.decode("ascii").strip(), GenericClaims)
            operator = claims.sub
            accounts = self._deletable(claims)
        except (JwtError, FolderError, UnicodeDecodeError) as problem:
            self._respond(reply, "", f"delete accounts request by {operator} failed", problem)
            return
        problems = []
        for account in accounts:
            try:
                self._folder.delete(account)
                self._operator.remove(account)
            except (OSError, FolderError) as problem:
                problems.append(str(problem))
        done = len(accounts) - len(problems)
        if problems:
            message = f"deleted {done} accounts, failed for {len(problems)}"
            self._respond(reply, "", message, "\n".join(problems))
        else:
            self._respond(reply, "", f"deleted {done} accounts")

    def _deletable(self, claims: GenericClaims) -> list[str]:
        accounts = claims.nats.get("accounts")
        if not self._folder.settings.allow_delete:
            raise FolderError("delete must be enabled in server config")
        if claims.sub != claims.iss:
            raise FolderError("not self signed")
        if claims.iss not in self._operator.trusted:
            raise FolderError("not trusted")
        if not isinstance(accounts, list) or not all(
            isinstance(each, str) and is_public(each, ACCOUNT) for each in accounts
        ):
            raise FolderError("malformed request")
        if self._system in accounts:
            raise FolderError("not allowed to delete system account")
        return accounts

    @property
    def _folder(self) -> FolderResolver:
        assert isinstance(self._resolver, FolderResolver)
        return self._resolver
