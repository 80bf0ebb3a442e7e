"""The auth callout on our server and on nats-server: a service, written with our own signer, decides."""

from __future__ import annotations

import threading

import pytest

from pelton import nkeys
from pelton.server.auth.claims import GenericClaims
from pelton.server.auth.jwt import decode, encode
from tests.server.auth import signed
from tests.server.auth.live import KINDS, OK, VIOLATION, Talk, attempt, configured
from tests.server.auth.signed import ACCOUNT, OTHER, SYSTEM_USER, USER, account_jwt, user_jwt

both = pytest.mark.parametrize("kind", KINDS)
CURVE = nkeys.CurvePair(bytes(range(32)))
ISSUER = signed.pair(nkeys.ACCOUNT, 40)

CONFIG = """
accounts {{
    AUTH {{ users: [{{user: auth, password: secret}}] }}
    APP {{ users: [{{user: listed, password: x}}] }}
    FREE {{ users: [{{user: free, password: x}}] }}
    SYS {{ }}
}}
system_account: SYS
authorization {{
    timeout: 1s
    auth_callout {{
        issuer: {issuer}
        account: AUTH
        auth_users: [auth]
        {more}
    }}
}}
"""


def config(more=""):
    return CONFIG.format(issuer=ISSUER.public, more=more)


class Service:
    """Answers requests of `$SYS.REQ.USER.AUTH` with what `decide` makes of them."""

    def __init__(self, server, decide, *, xkey=False, **shown):
        self.requests = []
        self._decide = decide
        self._xkey = xkey
        self.talk = Talk(server)
        sign = shown.pop("sign", "")
        if sign:
            shown["sig"] = nkeys.sign_nonce(sign, self.talk.info["nonce"])
        assert self.talk.connect(headers=True, **shown) == OK
        assert self.talk.say("SUB $SYS.REQ.USER.AUTH 1\nPING\n") == OK
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        talk = self.talk
        try:
            while line := talk.line():
                if line == "PING":
                    talk.send("PONG\n")
                if not line.startswith(("MSG", "HMSG")):
                    continue
                words = line.split()
                head = int(words[4]) if words[0] == "HMSG" else 0
                size = int(words[-1])
                while len(talk.data) < size + 2:
                    talk.data += talk.socket.recv(65536)
                whole, talk.data = talk.data[:size], talk.data[size + 2 :]
                answer = self._answer(whole[:head].decode(), whole[head:])
                if answer is not None:
                    talk.socket.sendall(b"PUB %s %d\r\n" % (words[3].encode(), len(answer)))
                    talk.socket.sendall(answer + b"\r\n")
        except (OSError, TimeoutError):
            return

    def _answer(self, headers, data):
        server_key = ""
        if self._xkey:
            server_key = headers.split("Nats-Server-Xkey: ")[1].split("\r\n")[0]
            data = CURVE.open(data, server_key)
        request = decode(data.decode(), GenericClaims)
        self.requests.append(request)
        answer = self._decide(request)
        if answer is None:
            return None
        if self._xkey:
            return CURVE.seal(answer.encode(), server_key, bytes(24))
        return answer.encode()

    def close(self):
        self.talk.close()
        self._thread.join(10)


def response(request, signer=ISSUER, **changes):
    """An authorization response to a request."""
    nats = {"type": "authorization_response", **changes.pop("nats", {})}
    claims = {
        "sub": request.nats["user_nkey"],
        "aud": request.nats["server_id"]["id"],
        "nats": nats,
        **changes,
    }
    return encode(claims, signer, signed.now())


def grant(request, *, account="APP", signer=ISSUER, **nats):
    token = user_jwt(
        request.nats["user_nkey"], signer=signer, name="bob", claims={"aud": account}, **nats
    )
    return response(request, signer, nats={"jwt": token})


@both
@pytest.mark.parametrize("xkey", [False, True])
def test_the_service_decides(kind, xkey, tmp_path):
    def decide(request):
        shown = request.nats["connect_opts"]
        if shown.get("pass") == "good":
            return grant(request, pub={"deny": ["secret"]})
        return response(request, nats={"error": "go away"})

    text = config(f"xkey: {CURVE.public}" if xkey else "")
    with configured(kind, tmp_path, text) as server:
        service = Service(server, decide, xkey=xkey, user="auth", **{"pass": "secret"})
        with Talk(server) as talk:
            assert (
                talk.connect(user="any", name="n", lang="l", version="v", **{"pass": "good"}) == OK
            )
            refused = "-ERR 'Permissions Violation for Publish to \"secret\"'"
            assert talk.say("PUB secret 0\n\n") == refused
            port = talk.socket.getsockname()[1]
        assert attempt(server, user="any", **{"pass": "bad"}) == VIOLATION
        assert attempt(server, auth_token="t") == VIOLATION
        # Users of the configuration are asked about, too, but for the service's own.
        assert attempt(server, user="listed", **{"pass": "x"}) == VIOLATION
        assert attempt(server, user="auth", **{"pass": "secret"}) == OK
        assert attempt(server, user="auth", **{"pass": "good"}) == VIOLATION
        first = service.requests[0]
        nats = first.nats
        assert first.aud == "nats-authorization-request"
        assert first.sub == ISSUER.public
        assert nkeys.is_public(first.iss, nkeys.SERVER)
        assert nats["server_id"]["id"] == first.iss
        assert nats["type"] == "authorization_request"
        assert nats["version"] == 2
        expected = {"user": "any", "pass": "good", "name": "n", "lang": "l", "version": "v"}
        assert nats["connect_opts"] == {**expected, "protocol": 1}
        client = nats["client_info"]
        assert (client["host"], client["user"], client["name"]) == ("127.0.0.1", "any", "n")
        assert (client["kind"], client["type"]) == ("Client", "nats")
        assert isinstance(client["id"], int)
        assert nkeys.is_public(nats["user_nkey"], nkeys.USER)
        assert ("xkey" in nats["server_id"]) is xkey
        assert port
        service.close()


@both
def test_answers_that_do_not_count(kind, tmp_path):
    stranger = signed.pair(nkeys.ACCOUNT, 41)
    answers = {
        "good": grant,
        "other user": lambda r: response(
            r, sub=USER.public, nats={"jwt": user_jwt(USER, signer=ISSUER, claims={"aud": "APP"})}
        ),
        "other server": lambda r: response(r, aud=signed.pair(nkeys.SERVER, 1).public),
        "stranger": lambda r: grant(r, signer=stranger),
        "no account": lambda r: grant(r, account="NONE"),
        "not for this user": lambda r: response(
            r, nats={"jwt": user_jwt(USER, signer=ISSUER, claims={"aud": "APP"})}
        ),
        "expired": lambda r: response(
            r,
            nats={
                "jwt": user_jwt(
                    r.nats["user_nkey"],
                    signer=ISSUER,
                    claims={"aud": "APP", "exp": signed.now() - 10},
                )
            },
        ),
        "garbage": lambda r: "nonsense",
        "empty": lambda r: "",
        "nothing said": lambda r: response(r),
    }
    with configured(kind, tmp_path, config()) as server:
        service = Service(
            server,
            lambda request: answers[request.nats["connect_opts"]["user"]](request),
            user="auth",
            **{"pass": "secret"},
        )
        for name in answers:
            assert attempt(server, user=name) == (OK if name == "good" else VIOLATION), name
        service.close()


@both
def test_no_answer_is_a_no(kind, tmp_path):
    with configured(kind, tmp_path, config()) as server:
        assert attempt(server, user="any") == VIOLATION
        service = Service(server, lambda request: None, user="auth", **{"pass": "secret"})
        assert attempt(server, user="any") == VIOLATION
        assert len(service.requests) == 1
        service.close()


@both
def test_nobody_else_may_ask_the_service(kind, tmp_path):
    def into_auth(request):
        return grant(request, account="AUTH")

    with configured(kind, tmp_path, config()) as server:
        service = Service(server, into_auth, user="auth", **{"pass": "secret"})
        refused = "-ERR 'Permissions Violation for Publish to \"$SYS.REQ.USER.AUTH\"'"
        for shown in ({"user": "any"}, {"user": "auth", "pass": "secret"}):
            with Talk(server) as talk:
                assert talk.connect(**shown) == OK
                assert talk.say("PUB $SYS.REQ.USER.AUTH 0\n\n") == refused
        service.close()


@both
def test_users_of_other_accounts_are_left_alone(kind, tmp_path):
    with configured(kind, tmp_path, config("allowed_accounts: [APP]")) as server:
        service = Service(
            server,
            lambda request: response(request, nats={"error": "no"}),
            user="auth",
            **{"pass": "secret"},
        )
        assert attempt(server, user="free", **{"pass": "x"}) == OK
        assert attempt(server, user="listed", **{"pass": "x"}) == VIOLATION
        service.close()


@both
def test_in_the_operator_mode(kind, tmp_path):
    """A bearer JWT brings a client to the service of its account, which puts it into another one."""
    account = account_jwt(
        authorization={"auth_users": [SYSTEM_USER.public], "allowed_accounts": [OTHER.public]}
    )
    text = signed.config(
        account, account_jwt(OTHER, name="B"), extra="authorization { timeout: 1s }"
    )

    def decide(request):
        if request.nats["connect_opts"].get("user") != "ann":
            return response(request, ACCOUNT, nats={"error": "no"})
        assert request.nats["connect_opts"]["jwt"] == sentinel
        token = user_jwt(request.nats["user_nkey"], signer=OTHER, name="ann")
        return response(request, ACCOUNT, nats={"jwt": token})

    sentinel = user_jwt(bearer_token=True)
    with configured(kind, tmp_path, text) as server:
        service = Service(server, decide, jwt=user_jwt(SYSTEM_USER), sign=SYSTEM_USER.seed)
        other = Talk(server)
        sig = nkeys.sign_nonce(USER.seed, other.info["nonce"])
        assert other.connect(jwt=user_jwt(signer=OTHER), sig=sig) == OK
        assert other.say("SUB a 1\nPING\n") == OK
        with Talk(server) as talk:
            assert talk.connect(jwt=sentinel, user="ann") == OK
            assert talk.say("PUB a 0\n\nPING\n") == OK
        assert other.say("") == "MSG a 1 0"
        assert attempt(server, jwt=sentinel, user="bob") == VIOLATION
        assert attempt(server, user="ann") == VIOLATION
        other.close()
        service.close()
