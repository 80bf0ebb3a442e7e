"""The arguments of a monitoring request: booleans and numbers as nats-server parses them, with its error
texts.

Each report has a msgspec Struct of options; requests over the system account send them as JSON.
"""

import json
import re

DEFAULT_LIMIT = 1024

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
_INT_MAX = (1 << 63) - 1


class QueryError(ValueError):
    """An argument has an invalid value: status 400, or an error in the answer's envelope."""


class Skip(Exception):
    """The request is for another server, or needs no answer."""


class Query(dict[str, str]):
    """The arguments: name to text; an absent one is empty."""

    def text(self, name: str) -> str:
        """An argument as text."""
        return self.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean. Raises QueryError."""
        text = self.text(name)
        if text and text not in _TRUE and text not in _FALSE:
            raise QueryError(
                f"Error decoding boolean for '{name}': "
                f"strconv.ParseBool: parsing {_quoted(text)}: invalid syntax"
            )
        return text in _TRUE

    def number(self, name: str) -> int:
        """A whole number. Raises QueryError."""
        text = self.text(name)
        if not text:
            return 0
        if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
            self._refuse("int", name, "Atoi", text, "invalid syntax")
        if len(text) > 20 or not -_INT_MAX - 1 <= int(text) <= _INT_MAX:
            self._refuse("int", name, "Atoi", text, "value out of range")
        return int(text)

    def unsigned(self, name: str) -> int:
        """A number that is not negative. Raises QueryError."""
        text = self.text(name)
        if not text:
            return 0
        if not re.fullmatch(r"[0-9]+", text, re.ASCII):
            self._refuse("uint64", name, "ParseUint", text, "invalid syntax")
        if len(text) > 20 or int(text) >= 1 << 64:
            self._refuse("uint64", name, "ParseUint", text, "value out of range")
        return int(text)

    def subscriptions(self) -> tuple[bool, bool]:
        """The argument `subs`: (list subscriptions, with details)."""
        if self.text("subs").lower() == "detail":
            return False, True
        return self.flag("subs"), False

    def _refuse(self, kind: str, name: str, function: str, text: str, why: str) -> None:
        raise QueryError(
            f"Error decoding {kind} for '{name}': strconv.{function}: "
            f"parsing {_quoted(text)}: {why}"
        )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def page(offset: int, limit: int) -> tuple[int, int]:
    """The effective (offset, limit) of a list."""
    return max(offset, 0), limit if limit > 0 else DEFAULT_LIMIT
