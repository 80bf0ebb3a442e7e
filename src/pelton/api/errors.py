"""API errors: the JSON object, and the exceptions for it.

Every documented error has its own class in `api/errors_generated`, made from `tools/errors.toml`. A
server raises them; a client gets them from `error_from`.
"""

import re
from typing import Annotated, ClassVar

from msgspec import Struct

from pelton import errors
from pelton.api.fields import OMIT, Int, Uint16

_PART = re.compile(r"\{[a-z]+\}")


class ErrorBody(Struct, kw_only=True):
    """The error object: `code` is like an HTTP status, `err_code` identifies the error."""

    code: Int = 0
    err_code: Annotated[Uint16, OMIT] = 0
    description: Annotated[str, OMIT] = ""


class ApiError(errors.ApiError):
    """A call was refused.

    There is one subclass per `err_code`; the class itself stands for undocumented codes.
    """

    code: int = 500
    err_code: int = 0
    template: ClassVar[str] = "{err}"
    protocol_name: ClassVar[str] = ""
    """The name in the protocol's own list of errors, such as "StreamNotFound"."""
    description: str

    _by_err_code: ClassVar[dict[int, type["ApiError"]]] = {}

    def __init_subclass__(cls) -> None:
        """Register the subclass under its `err_code`."""
        ApiError._by_err_code[cls.err_code] = cls

    def __init__(self, *parts: object) -> None:
        """The parts fill the template from the left; TypeError if their number is wrong."""
        self.description = self._fill(parts)
        super().__init__(self.description)

    def _fill(self, parts: tuple[object, ...]) -> str:
        pieces = _PART.split(self.template)
        if len(pieces) != len(parts) + 1:
            raise TypeError(
                f"{type(self).__name__} takes {len(pieces) - 1} parts, got {len(parts)}"
            )
        text = pieces[0]
        for part, piece in zip(parts, pieces[1:], strict=True):
            text += f"{part}{piece}"
        return text

    def __str__(self) -> str:
        """Description and code, for logs and users."""
        return f"{self.description} ({self.err_code or self.code})"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the body: the parts are not kept."""
        return error_from, (self.body(),)

    def body(self) -> ErrorBody:
        """The JSON object of the answer."""
        return ErrorBody(code=self.code, err_code=self.err_code, description=self.description)


def define(
    name: str, code: int, err_code: int, template: str, base: type[Exception] | None = None
) -> type[ApiError]:
    """The class for one documented error; raising it fills in the `{parts}` of the template.

    `base` is the class of `pelton.errors` that users are told to catch; tracebacks show its name.
    """
    attributes = {
        "__doc__": f"{err_code} ({code}): {template}.",
        "code": code,
        "err_code": err_code,
        "template": template,
        "protocol_name": name.removesuffix("Error"),
    }
    if base is None:
        kind = type(name, (ApiError,), attributes)
        kind.__module__ = "pelton.api.errors_generated"
    else:
        kind = type(base.__name__, (ApiError, base), attributes)
        kind.__module__ = base.__module__
    return kind


def error_from(body: ErrorBody) -> ApiError:
    """The exception for an error in a server's answer, with its description and code."""
    kind = ApiError._by_err_code.get(body.err_code, ApiError)
    error = kind.__new__(kind)
    Exception.__init__(error, body.description)
    error.code, error.err_code, error.description = body.code, body.err_code, body.description
    return error
