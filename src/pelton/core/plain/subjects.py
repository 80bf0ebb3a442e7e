"""Valid subjects, and how patterns match, in plain Python: the twin of core/protocol/subjects.

It has the functions that clients use; the trie of a server's subscriptions is compiled only.
"""

_BLANKS = frozenset(b" \t\r\n\f")


def _tokens(subject: str | bytes) -> list[bytes]:
    if type(subject) is str:
        return subject.encode("utf-8", "surrogateescape").split(b".")
    if type(subject) is bytes:
        return subject.split(b".")
    raise TypeError(f"a subject is a str or bytes, not {type(subject).__name__}")


def valid(subject: str | bytes) -> bool:
    """Whether it is a subject at all: tokens not empty, no blanks, `>` only last. Wildcards are allowed."""
    tokens = _tokens(subject)
    return (
        all(tokens)
        and b">" not in tokens[:-1]
        and not any(_BLANKS.intersection(token) for token in tokens)
    )


def literal(subject: str | bytes) -> bool:
    """Whether it is a valid subject without wildcard tokens."""
    tokens = _tokens(subject)
    return b"*" not in tokens and b">" not in tokens and valid(subject)


def matches(subject: str | bytes, pattern: str | bytes) -> bool:
    """Whether the literal subject matches the pattern."""
    tokens, wanted = _tokens(subject), _tokens(pattern)
    for i, (token, want) in enumerate(zip(tokens, wanted, strict=False)):
        if want == b">" and i == len(wanted) - 1:
            return True
        if want not in (b"*", token):
            return False
    return len(tokens) == len(wanted)


def collide(a: str | bytes, b: str | bytes) -> bool:
    """Whether some literal subject matches both patterns (both valid)."""
    left, right = _tokens(a), _tokens(b)
    for one, other in zip(left, right, strict=False):
        if b">" in (one, other):
            return True
        if b"*" not in (one, other) and one != other:
            return False
    return len(left) == len(right)


def subset(a: str | bytes, b: str | bytes) -> bool:
    """Whether every subject that matches a matches b as well (both valid)."""
    left, right = _tokens(a), _tokens(b)
    for one, other in zip(left, right, strict=False):
        if other == b">":
            return True
        if one == b">" or other not in (b"*", one):
            return False
    return len(left) == len(right)
