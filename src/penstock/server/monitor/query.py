"""The arguments of a monitoring request: booleans and numbers as nats-server parses them, with its error
texts.

Each report has a msgspec Struct of options; requests over the system account bring them as JSON.
"""

import json
import re

DEFAULT_LIMIT = 1024

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
_INT_MAX = (1 << 63) - 1


class QueryError(ValueError):
    """An argument has a value it can't have: 400, or an error in the answer's envelope."""


class Skip(Exception):
    """The request is not for this server or nothing is to be said: no answer at all."""


class Query(dict[str, str]):
    """Name to text; what is absent is empty."""

    def text(self, name: str) -> str:
        """As it stands."""
        return self.get(name, "")

    def flag(self, name: str) -> bool:
        """A boolean; QueryError."""
        text = self.text(name)
        if text and text not in _TRUE and text not in _FALSE:
            raise QueryError(
                f"Error decoding boolean for '{name}': "
                f"strconv.ParseBool: parsing {_quoted(text)}: invalid syntax"
            )
        return text in _TRUE

    def number(self, name: str) -> int:
        """A whole number; QueryError."""
        text = self.text(name)
        if not text:
            return 0
        if not re.fullmatch(r"[+-]?[0-9]+", text, re.ASCII):
            self._refuse("int", name, "Atoi", text, "invalid syntax")
        if len(text) > 20 or not -_INT_MAX - 1 <= int(text) <= _INT_MAX:
            self._refuse("int", name, "Atoi", text, "value out of range")
        return int(text)

    def unsigned(self, name: str) -> int:
        """A number that is not negative; QueryError."""
        text = self.text(name)
        if not text:
            return 0
        if not re.fullmatch(r"[0-9]+", text, re.ASCII):
            self._refuse("uint64", name, "ParseUint", text, "invalid syntax")
        if len(text) > 20 or int(text) >= 1 << 64:
            self._refuse("uint64", name, "ParseUint", text, "value out of range")
        return int(text)

    def subscriptions(self) -> tuple[bool, bool]:
        """(subs, subs in detail)."""
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
    """(offset, limit) of a list, as they are used."""
    return max(offset, 0), limit if limit > 0 else DEFAULT_LIMIT
