"""The auth callout: a service in one of the accounts decides whether a client may connect.

    CONNECT -> request JWT, signed by this server -> $SYS.REQ.USER.AUTH -> the service
                                                                              |
    Admitted | Refused <- response JWT with a user JWT, signed by an account <-+

Request and response may be encrypted with curve keys. Each request names a fresh user key, and only a
response for that key is valid, so a response can't be used twice.
"""

import os
from collections.abc import Callable, Mapping
from typing import Protocol

from pelton.core.broker.reactor import Connection
from pelton.core.broker.router import CallbackSink, Router
from pelton.nkeys import NONCE_BYTES, USER, CurvePair, KeyPair, NkeyError
from pelton.server.auth.claims import ANY, ResponseClaims, UserClaims
from pelton.server.auth.connect_options import Credentials
from pelton.server.auth.from_claims import permissions
from pelton.server.auth.jwt import JwtError, decode
from pelton.server.auth.jwt import encode as encode_jwt
from pelton.server.auth.operator import OperatorMode, Record, kind_allowed
from pelton.server.auth.result import Admitted, AuthContext, Outcome, PendingOutcome, Refused
from pelton.server.auth.scoped_keys import ScopeError
from pelton.server.auth.validity import allowed_until_ns
from pelton.server.settings import COMPATIBLE_VERSION, Settings
from pelton.server.settings.accounts import DEFAULT_ACCOUNT
from pelton.server.settings.users import Permissions
from pelton.server.units import SECOND_NS

SUBJECT = "$SYS.REQ.USER.AUTH"
AUDIENCE = "nats-authorization-request"
XKEY_HEADER = "Nats-Server-Xkey"


class CalloutServer(Protocol):
    """The parts of the server that the callout uses."""

    def router(self, account: str) -> Router | None:
        """The router of an account; None when there is no such account."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""

    def call_at(self, when_ns: int, call: Callable[[], None]) -> None:
        """Call `call` at `when_ns`, on the event loop's thread."""

    def warn(self, text: str) -> None:
        """Log a warning for the operator."""


class ServerKeys:
    """The keys of this server: one signs its requests, the other one encrypts them."""

    def __init__(self, raw: bytes, curve: bytes) -> None:
        """Make the keys from 32 random bytes each."""
        from pelton.nkeys import SERVER

        self.signing = KeyPair(SERVER, raw)
        self.curve = CurvePair(curve)


class Callout:
    """Asks the callout service. `operator` is set in operator mode, where each account may have its
    own service.
    """

    def __init__(
        self,
        settings: Settings,
        keys: ServerKeys,
        server: CalloutServer,
        server_name: str,
        operator: OperatorMode | None = None,
    ) -> None:
        """Use the auth_callout of the settings, or in operator mode those of the account JWTs."""
        self.settings = settings
        self.keys = keys
        self.server = server
        self.server_name = server_name
        self.operator = operator

    # -- which clients the service decides about

    def review(self, outcome: Outcome, asked: Credentials, context: AuthContext) -> Outcome:
        """Check a client with the users table, then with the service."""
        if isinstance(outcome, PendingOutcome) and outcome.outcome is None:
            later = PendingOutcome()

            def known(found: Admitted | Refused) -> None:
                reviewed = self.review(found, asked, context)
                if isinstance(reviewed, PendingOutcome):
                    reviewed.then(later.settle)
                else:
                    later.settle(reviewed)

            outcome.then(known)
            return later
        if isinstance(outcome, PendingOutcome):
            assert outcome.outcome is not None
            outcome = outcome.outcome
        callout = self.settings.auth_callout
        assert callout is not None
        own = callout.account or DEFAULT_ACCOUNT
        if isinstance(outcome, Admitted):
            account = outcome.account or DEFAULT_ACCOUNT
            elsewhere = account != DEFAULT_ACCOUNT and not context.leaf
            if elsewhere and callout.allowed_accounts and account not in callout.allowed_accounts:
                return outcome
        if shown_as(asked) in callout.auth_users:
            return _guarded(outcome, own)
        question = _Question(self, asked, context, own, callout.issuer, callout.xkey, None, "")
        return self._ask(question, own)

    def review_in(
        self,
        record: Record,
        outcome: Admitted | Refused,
        user: UserClaims,
        token: str,
        asked: Credentials,
        context: AuthContext,
    ) -> Outcome:
        """In operator mode: ask the service of the user's account, if it has one."""
        authorization = record.claims.nats.authorization
        if authorization is None or not authorization.auth_users or isinstance(outcome, Refused):
            return outcome
        if user.sub in authorization.auth_users:
            return _guarded(outcome, record.claims.sub)
        account = record.claims.sub
        question = _Question(
            self, asked, context, account, account, authorization.xkey, record, token
        )
        question.name_tag, question.tags = outcome.name_tag, outcome.tags
        return self._ask(question, account)

    def _ask(self, question: "_Question", own: str) -> Outcome:
        later, answer = PendingOutcome(), PendingOutcome()
        answer.then(lambda found: later.settle(_guarded(found, own)))
        question.ask(answer)
        return later.outcome or later


class _Question:
    """One request to a service, until the answer or the timeout."""

    def __init__(
        self,
        callout: Callout,
        asked: Credentials,
        context: AuthContext,
        account: str,
        issuer: str,
        xkey: str,
        record: Record | None,
        token: str,
    ) -> None:
        self.callout = callout
        self.asked = asked
        self.context = context
        self.account = account  # the service's account
        self.issuer = issuer
        self.xkey = xkey
        self.record = record  # the record of that account, in operator mode
        self.token = token
        self.name_tag = ""
        self.tags: list[str] = []
        # The private half is not needed: the key only identifies this request.
        self.user_key = KeyPair(USER, os.urandom(32)).public
        self.reply = f"$SYS._INBOX.{os.urandom(12).hex()}"
        self.answer = PendingOutcome()
        self._sink = CallbackSink(self._came)

    def ask(self, answer: PendingOutcome) -> None:
        """Send the request. `answer` is settled by the response or by the timeout."""
        self.answer = answer
        server = self.callout.server
        router = server.router(self.account)
        if router is None:
            server.warn(f'No valid account "{self.account}" for auth callout request')
            answer.settle(Refused("no account for the auth callout"))
            return
        keys = self.callout.keys
        payload, headers = self._request().encode(), b""
        if self.xkey:
            payload = keys.curve.seal(payload, self.xkey, os.urandom(NONCE_BYTES))
            headers = f"NATS/1.0\r\n{XKEY_HEADER}: {keys.curve.public}\r\n\r\n".encode()
        router.attach(self.reply, self._sink)
        timeout_ns = self.callout.settings.auth_timeout_ns
        server.call_at(server.now_ns() + timeout_ns, self._late)
        router.publish_message(SUBJECT, payload, self.reply, headers)

    def _request(self) -> str:
        callout, asked, context = self.callout, self.asked, self.context
        settings = callout.settings
        now_s = callout.server.now_ns() // SECOND_NS
        server = {
            "name": callout.server_name,
            "host": settings.host,
            "id": callout.keys.signing.public,
            "version": COMPATIBLE_VERSION,
            "xkey": callout.keys.curve.public if self.xkey else "",
        }
        client = {
            "host": context.host,
            "id": context.cid,
            "user": shown_as(asked) or "",
            "name": asked.name,
            "tags": self.tags,
            "name_tag": self.name_tag,
            "kind": "Leafnode" if context.leaf else "Client",
            "type": "" if context.leaf else _types(context.kind),
            "nonce": context.nonce if asked.sig else "",
        }
        shown = {
            "jwt": self.token,
            "nkey": asked.nkey,
            "sig": asked.sig,
            "auth_token": asked.auth_token,
            "user": asked.user,
            "pass": asked.password,
            "name": asked.name,
            "lang": asked.lang,
            "version": asked.version,
        }
        nats: dict[str, object] = {
            "server_id": _filled(server),
            "user_nkey": self.user_key,
            "client_info": _filled(client),
            "connect_opts": {**_filled(shown), "protocol": asked.protocol},
            "type": "authorization_request",
        }
        if context.tls is not None:
            nats["client_tls"] = context.tls
        claims = {
            "aud": AUDIENCE,
            "exp": now_s + max(settings.auth_timeout_ns // SECOND_NS, 1),
            "sub": self.issuer,
            "nats": nats,
        }
        return encode_jwt(claims, callout.keys.signing, now_s)

    def _late(self) -> None:
        if self.answer.outcome is None:
            self._settle(Refused("Authorization callout response not received in time"))

    def _came(
        self, connection: Connection | None, subject: str, reply: str, headers: bytes, data: bytes
    ) -> bool:
        try:
            outcome: Admitted | Refused = self._read(data)
        except (JwtError, NkeyError, ScopeError, UnicodeDecodeError) as problem:
            self.callout.server.warn(f"{problem}"[:500])
            outcome = Refused(str(problem))
        self._settle(outcome)
        return True

    def _settle(self, outcome: Admitted | Refused) -> None:
        router = self.callout.server.router(self.account)
        if router is not None:
            router.detach(self.reply, self._sink)
        self.answer.settle(outcome)

    # -- the answer

    def _read(self, data: bytes) -> Admitted:
        if not data:
            raise JwtError(
                f'Auth callout violation: no reason supplied on account "{self.account}"'
            )
        sealed = bool(self.xkey) and not data.startswith(b"eyJ")
        if sealed:
            data = self.callout.keys.curve.open(data, self.xkey)
        response = decode(data.decode("ascii").strip(), ResponseClaims)
        now_s = self.callout.server.now_ns() // SECOND_NS
        nats = response.nats
        if response.sub != self.user_key:
            raise JwtError("Auth callout violation: response is not for expected user")
        if response.aud != self.callout.keys.signing.public:
            raise JwtError("Auth callout violation: response is not for server")
        if response.out_of_time(now_s):
            raise JwtError("Authorization response had validation errors: not valid now")
        if bool(nats.jwt) == bool(nats.error):
            raise JwtError("Authorization response: exactly one of Error or Jwt can be set")
        if nats.error:
            raise JwtError(f"Auth callout service returned an error: {nats.error}")
        if self.record is not None and not sealed:
            signer = nats.issuer_account or response.iss
            if signer != self.account and signer not in self.record.signers:
                raise JwtError("Auth callout signing key is unknown")
        user = decode(nats.jwt, UserClaims)
        problem = user.out_of_time(now_s) or next(user.problems(), "")
        if problem:
            raise JwtError(f"Error validating user JWT: {problem}")
        if user.sub != self.user_key:
            raise JwtError("Expected authorized user of this request but got another one")
        if user.nats.proxy_required:
            raise JwtError("Proxy required")
        return self._place(user)

    def _place(self, user: UserClaims) -> Admitted:
        """The account in which the service places the user, and the settings of that account."""
        now_ns = self.callout.server.now_ns()
        if self.record is None:
            if user.nats.issuer_account:
                raise JwtError("Attempted to use issuer_account outside of the operator mode")
            if user.iss != self.issuer:
                raise JwtError(f'Wrong issuer for auth callout response: "{user.iss}"')
            account, nats = user.aud, user.nats
            default = None
        else:
            record = self._target(user)
            account = record.claims.sub
            assert self.callout.operator is not None
            nats = self.callout.operator.scoped(user, record)
            default = record.settings.default_permissions
        if not account or self.callout.server.router(account) is None:
            raise JwtError(f'No valid account "{account}" for auth callout response')
        until_ns = allowed_until_ns(nats, now_ns)
        if until_ns is None:
            raise JwtError("Authorized user outside of valid connect times")
        if not kind_allowed(nats.allowed_connection_types, self.context.kind):
            raise JwtError("Authorized user using invalid connection type")
        own = permissions(nats.pub, nats.sub, nats.resp)
        return Admitted(
            name=user.name or shown_as(self.asked) or user.sub,
            account=account,
            permissions=own or default,
            expires_ns=min((t for t in (user.exp * SECOND_NS, until_ns) if t), default=0),
            nkey=user.sub,
            issuer=user.iss,
            name_tag=user.name,
            tags=list(user.nats.tags or []),
            issued_at=user.iat,
            default_permissions=own is None,
            way="callout" if self.record is None else "jwt",
        )

    def _target(self, user: UserClaims) -> Record:
        operator = self.callout.operator
        assert operator is not None
        assert self.record is not None
        if user.account == self.account:
            return self.record
        authorization = self.record.claims.nats.authorization
        allowed = (authorization.allowed_accounts if authorization else None) or []
        if user.account not in allowed and ANY not in allowed:
            raise JwtError(f'Account "{user.account}" not permitted as valid account option')
        found: list[Record] = []
        operator.load(user.account, lambda record: found.append(record) if record else None)
        if not found:
            raise JwtError(f'No valid account "{user.account}" for auth callout response')
        return found[0]


def shown_as(asked: Credentials) -> str | None:
    """The name that the lists of auth users use for a client."""
    return asked.nkey or asked.user or ("[REDACTED]" if asked.auth_token else None)


def _types(kind: str) -> str:
    return {"WEBSOCKET": "websocket", "MQTT": "mqtt", "MQTT_WS": "mqtt"}.get(kind, "nats")


def _filled(fields: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in fields.items() if value}


def _guarded(outcome: Admitted | Refused, account: str) -> Admitted | Refused:
    """Forbid clients in the service's account to publish requests to the service: only the server
    may.
    """
    if isinstance(outcome, Refused) or (outcome.account or DEFAULT_ACCOUNT) != account:
        return outcome
    before = outcome.permissions or Permissions()
    if SUBJECT in before.publish.deny:
        return outcome
    publish = type(before.publish)(before.publish.allow, [*before.publish.deny, SUBJECT])
    outcome.permissions = Permissions(publish, before.subscribe, before.responses)
    return outcome
