"""What clients show: CONNECT, JWTs (signed right here, so that their claims are reached), nkeys, credentials."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from pelton import nkeys
from pelton.nkeys import NkeyError
from pelton.server.auth.claims import AccountClaims, AnyClaims, OperatorClaims, UserClaims
from pelton.server.auth.connect_options import read_connect
from pelton.server.auth.jwt import JwtError, decode

PAIR = nkeys.KeyPair(nkeys.ACCOUNT, (4).to_bytes(32, "big"))
KINDS: tuple[type[AnyClaims], ...] = (UserClaims, AccountClaims, OperatorClaims)
WORDS = (
    b'"iss":"', PAIR.public.encode(), b'"nats":{', b'"type":"user"', b'"type":"account"', b'"version":2', b'"pub":{"allow":["', b'"resp":{"max":1,"ttl":5}',
    b'"limits":{', b'"exports":[{', b'"imports":[{', b'"signing_keys":[', b'"scope"', b'"exp":', b'"tiered_limits":{"R1":{', b'"mappings":{',
    b'"user":"', b'"pass":"', b'"auth_token":"', b'"jwt":"', b'"sig":"', b'"nkey":"', b'"lang":"', b'"headers":true', b'"protocol":1', b"1e999", b"null",
    b"-----BEGIN NATS USER JWT-----\n", b"------END NATS USER JWT------\n", b"-----BEGIN USER NKEY SEED-----\n", b"SUA", b"SAA",
)  # fmt: skip
HEAD = b'{"typ":"JWT","alg":"ed25519-nkey"}'


def run(data: bytes) -> None:
    """Byte 0: what the rest is."""
    if not data:
        return
    kind, body = data[0], data[1:]
    if kind % 4 == 0:
        try:
            read_connect(body)
        except ValueError:
            pass
    elif kind % 4 == 1:
        signed(body, KINDS[kind // 4 % 3])
    elif kind % 4 == 2:
        keys(body.decode("latin-1"))
    else:
        try:
            decode(body.decode("latin-1"), AnyClaims)
        except JwtError:
            pass


def part(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def signed(claims: bytes, wanted: type[AnyClaims]) -> None:
    text = f"{part(HEAD)}.{part(claims)}"
    try:
        found = decode(f"{text}.{part(PAIR.sign(text.encode()))}", wanted)
    except JwtError:
        return
    assert isinstance(found, wanted)


def keys(text: str) -> None:
    for read in (
        nkeys.decode,
        nkeys.kind_of,
        nkeys.read_jwt,
        nkeys.read_credentials,
        nkeys.read_seed,
        nkeys.KeyPair.from_seed,
    ):
        try:
            read(text)
        except NkeyError:
            continue
    nkeys.is_public(text, nkeys.USER)
    nkeys.read_signature(text)
    try:
        kind, raw = nkeys.decode_seed(text)
    except NkeyError:
        return
    assert nkeys.encode_seed(kind, raw) == text


def seeds() -> Iterable[bytes]:
    issuer = b'"iss":"' + PAIR.public.encode() + b'",'
    yield b"\0" + b'{"verbose":false,"user":"a","pass":"b","lang":"py","headers":true,"protocol":1}'
    yield b"\0" + b'{"jwt":"eyJ","sig":"abc","nkey":"U","auth_token":7}'
    for at, body in enumerate((
        b'"nats":{"type":"user","version":2,"pub":{"allow":["a"]},"subs":-1,"data":-1,"payload":-1}',
        b'"nats":{"type":"account","version":2,"limits":{"subs":-1,"conn":-1,"mem_storage":5},"exports":[{"subject":"a","type":"service"}]}',
        b'"nats":{"type":"operator","version":2,"signing_keys":[]}',
        b'"type":"user","nats":{"src":"1.2.3.4","times":[{"start":"01:00:00","end":"02:00:00"}]}',
    )):  # fmt: skip
        yield (
            bytes([1 + 4 * (at % 3)])
            + b"{"
            + issuer
            + b'"sub":"x","name":"n","iat":1,'
            + body
            + b"}"
        )
    yield b"\2" + PAIR.public.encode()
    yield b"\2" + PAIR.seed.encode()
    yield b"\2" + nkeys.format_credentials("a.b.c", PAIR.seed).encode()
    yield b"\3" + b"eyJ0eXAiOiJKV1QifQ.eyJ9.c2ln"
