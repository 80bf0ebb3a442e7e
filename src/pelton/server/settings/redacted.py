"""Settings with secrets: these must not reach a log or a traceback."""

from typing import ClassVar

from msgspec import Struct


class Redacted(Struct):
    """A struct whose repr leaves out the fields that `secrets` names."""

    secrets: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        """The fields without the secrets."""
        shown = ", ".join(
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name not in self.secrets
        )
        return f"{type(self).__name__}({shown})"
