"""Values under the names that the server's Go code has for them: ``Info.State.Msgs`` is ``info.state.messages``."""

from __future__ import annotations

from typing import Any

_OTHER = {
    "consumers": "consumer_count",
    "maxmsgsper": "max_msgs_per_subject",
    "msgs": "messages",
    "numsubs": "subscriptions",
    "replicas": "num_replicas",
    "duplicates": "duplicate_window",
    "tlscipher": "tls_cipher_suite",
    "version": "ver",
}
"""Go names, in small letters, that are not the JSON name without underscores."""


class GoNames(dict[str, Any]):
    """A JSON object whose fields are also found by their Go names; objects inside it, too."""

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a field; ``default`` if there is none."""
        plain = key.replace("_", "").lower()
        known = {name.replace("_", "").lower(): name for name in self}
        name = known.get(plain) or _OTHER.get(plain)
        return with_go_names(super().get(name, default)) if name else default

    def __contains__(self, key: object) -> bool:
        """Whether there is such a field."""
        return self.get(str(key)) is not None


def with_go_names(value: Any) -> Any:
    """The value, where objects have Go names, too."""
    if isinstance(value, dict):
        return GoNames(value)
    return [with_go_names(each) for each in value] if isinstance(value, list) else value
