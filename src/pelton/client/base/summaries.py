"""One line about a bucket for people: what it holds, and the limits that it has."""

from __future__ import annotations

from pelton.api.times import format_duration


def bucket_summary(
    bucket: str,
    *held: str,
    size: int,
    ttl_ns: int,
    max_bytes: int,
    storage: str,
    replicas: int,
    marks: tuple[str, ...] = (),
) -> str:
    """``held``: what it holds; ``marks``: what else is to be told. Limits that it has not are left out."""
    parts = [*held, f"{size} bytes"]
    if max_bytes > 0:
        parts[-1] += f" of {max_bytes}"
    if ttl_ns:
        parts.append(f"ttl {format_duration(ttl_ns)}")
    parts.append(storage)
    if replicas > 1:
        parts.append(f"{replicas} replicas")
    return f"{bucket}: {', '.join((*parts, *marks))}"
