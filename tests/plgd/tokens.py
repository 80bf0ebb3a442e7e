"""Keys and tokens for tests."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm

ALGORITHM = "ES256"


class Issuer:
    """Signs tokens with a key of its own."""

    def __init__(self, kid: str | None = "key-1") -> None:
        self.kid = kid
        self.key = ec.generate_private_key(ec.SECP256R1())

    def token(self, owner: str | None = "a", **claims: Any) -> str:
        """A token for an hour."""
        content = {"exp": int(time.time()) + 86_400} | ({} if owner is None else {"sub": owner})
        headers = {} if self.kid is None else {"kid": self.kid}
        return jwt.encode(content | claims, self.key, ALGORITHM, headers=headers)

    def pem(self) -> str:
        """The public key as PEM."""
        public = self.key.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def key_set(self) -> str:
        """The public key as a JSON web key set."""
        key = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        return json.dumps({"keys": [key | {"kid": self.kid, "alg": ALGORITHM}]})
