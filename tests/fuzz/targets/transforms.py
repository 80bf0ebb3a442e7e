"""Subject transforms: any source and destination is refused in words, or makes subjects that can be published."""

from __future__ import annotations

from collections.abc import Iterable

from pelton.core.protocol.subjects import literal
from pelton.engine.base.transforms import TransformError, check, parse, publishable
from tests.fuzz.inputs import Input

MAX_BYTES = 300
WORDS = (
    b"{{wildcard(1)}}", b"{{partition(5,1,2)}}", b"{{split(1,-)}}", b"{{splitFromLeft(1,3)}}", b"{{SliceFromRight(2,2)}}",
    b"{{left(1,2)}}", b"{{right(1,2)}}", b"{{random(3)}}", b"$1", b"$2", b".>", b".*", b"99999999999", b"-1",
)  # fmt: skip


def run(data: bytes) -> None:
    """Source, destination, and subjects to apply it to."""
    given = Input(data)
    src, dest = given.text(60), given.text(100)
    subjects = [given.text(60) for _ in range(3)]
    publishable(dest)
    try:
        check(src, dest)
        sound = True
    except TransformError:
        sound = False
    try:
        made = parse(src, dest, lambda limit: limit - 1)
    except TransformError:
        assert not sound or not dest
        return
    for subject in [*subjects, src.replace("*", "x").replace(">", "y.z")]:
        found = made.apply(subject)
        assert found == made.apply(subject)
        assert found is None or isinstance(found, str)
        if found is not None and made._same:
            assert literal(subject)


def seeds() -> Iterable[bytes]:
    def text(value: bytes) -> bytes:
        return bytes([len(value)]) + value

    for word in WORDS:
        yield text(b"a.*.*") + text(b"b." + word + b".c") + text(b"a.one-two.three") + text(b"a.b")
        yield text(b"a.*.>") + text(b"b." + word + b".>") + text(b"a.one.two.three")
    yield text(b"") + text(b"x.>") + text(b"q.r")
