"""Who a client is: checks the credentials of CONNECT against the settings. Pure; every comparison
takes constant time.
"""

import hmac

from penstock.server.settings import Settings


def same(expected: str, given: str) -> bool:
    """Whether two secrets are equal, in a time that does not tell where they differ."""
    return hmac.compare_digest(
        expected.encode("utf-8", "surrogatepass"), given.encode("utf-8", "surrogatepass")
    )


def authenticate(settings: Settings, user: str, password: str, token: str) -> str | None:
    """The name that the client is known by, or None when it is refused.

    Without credentials in the settings everybody is welcome. A users table comes first, then the
    single user, then the token.
    """
    if settings.users:
        granted = None
        for entry in settings.users:
            # Both are always compared, for every entry: the time tells nothing about which users
            # there are.
            fits = same(entry.name, user) & same(entry.password, password)
            if fits:
                granted = entry.name
        return granted
    if settings.user:
        fits = same(settings.user, user) & same(settings.password, password)
        return settings.user if fits else None
    if settings.token:
        return "[token]" if same(settings.token, token) else None
    return user
