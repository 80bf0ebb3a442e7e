"""Settings of users and permissions. Configuration files, JWTs and auth callouts are converted to these
values.
"""

from msgspec import Struct, field

from pelton.server.settings.redacted import Redacted

CONNECTION_TYPES = frozenset(
    ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")
)
RESPONSES_MAX = 1
RESPONSES_EXPIRE_NS = 120 * 1_000_000_000
_BCRYPT = ("$2a$", "$2b$", "$2x$", "$2y$")


def is_bcrypt(secret: str) -> bool:
    """Whether a password or token in the settings is a hash, not the secret itself."""
    return secret[:4] in _BCRYPT and secret[4:6].isdecimal() and secret[6:7] == "$"


class SubjectPermission(Struct):
    """Subjects for publishing or subscribing: the allowed ones, minus the denied ones.

    A subscribe entry may have a queue after a blank (``orders.* workers``); subject and queue may
    have wildcards.
    """

    allow: list[str] | None = None  # None: all subjects
    deny: list[str] = field(default_factory=list)


class Responses(Struct):
    """Permission to publish to the reply subjects of received messages."""

    max: int = RESPONSES_MAX  # below 0: no limit
    expires_ns: int = RESPONSES_EXPIRE_NS  # below 0: never


class Permissions(Struct):
    """The permissions of a user. A user without Permissions may do everything."""

    publish: SubjectPermission = field(default_factory=SubjectPermission)
    subscribe: SubjectPermission = field(default_factory=SubjectPermission)
    responses: Responses | None = None


class User(Redacted):
    """One user: of ``authorization.users``, of an account, or made from a JWT."""

    secrets = ("password",)

    name: str = ""
    password: str = ""  # plain, or a bcrypt hash
    nkey: str = ""  # public key; such a user signs the nonce and has no name
    account: str = ""  # "": the default account
    permissions: Permissions | None = None
    connection_types: frozenset[str] = (
        frozenset()
    )  # of STANDARD, WEBSOCKET, LEAFNODE, …; empty: any
    proxy_required: bool = False
