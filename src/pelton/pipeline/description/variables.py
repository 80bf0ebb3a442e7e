"""``${NAME}`` and ``${file:path}`` in the values of a document, replaced.

====================  ==============================================================================
``${NAME}``           the environment variable, which must be set
``${NAME:-text}``     the variable, or the text if it is not set or empty
``${file:path}``      the content of a file, without white space at both ends: a secret. The path may
                      contain ``${NAME}``; a relative one starts at the folder of the document
``$${``               the two characters ``${``
====================  ==============================================================================

Variables are replaced after the YAML is read, and only in values, so a variable cannot add keys. No
variable runs a program: whoever checks a file must be able to do so without trusting it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pelton.pipeline.description.document import Items, Section, Text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pelton.pipeline.description.document import Value
    from pelton.pipeline.description.problems import Problems

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_VARIABLE = re.compile(
    rf"\$\$\{{|\$\{{file:(?P<file>(?:\$\{{{_NAME}\}}|[^}}])*)\}}"
    rf"|\$\{{(?P<program>command|cmd|exec|shell):(?:[^}}]*)\}}"
    rf"|\$\{{(?P<name>{_NAME})(?::-(?P<default>[^}}]*))?\}}|\$\{{"
)
_FILE_BYTES = 65536
_FORMS = "${ begins a variable, as in ${NAME}, ${NAME:-text} or ${file:path}; $${ is a plain ${"
_NO_PROGRAMS = (
    "a pipeline file runs no programs; write the secret to a file before the run, and give"
    " ${file:path}"
)


class Variables:
    """Fills in the values of a document, and adds contents of files to the secrets of ``problems``."""

    def __init__(
        self, environment: Mapping[str, str], folder: Path | None, problems: Problems
    ) -> None:
        """Relative paths start at ``folder``, or at the working directory."""
        self._environment = environment
        self._folder = folder or Path()
        self._problems = problems

    def section(self, section: Section) -> Section:
        """The same keys with their values filled in."""
        entries = {name: self._value(each) for name, each in section.entries.items()}
        return replace(section, entries=entries)

    def _value(self, value: Value) -> Value:
        if isinstance(value, Text):
            return replace(value, value=self._filled(value.value, value.line))
        if isinstance(value, Items):
            return replace(value, items=tuple(map(self._value, value.items)))
        return None if value is None else self.section(value)

    def _filled(self, text: str, line: int) -> str:
        def one(match: re.Match[str]) -> str:
            if match["name"] is not None:
                return self._variable(match["name"], match["default"], line)
            if match["file"] is not None:
                return self._content(self._filled(match["file"], line), line)
            if match["program"] is not None:
                self._problems.add(line, f"there is no ${{{match['program']}:...}}: {_NO_PROGRAMS}")
            elif match[0] != "$${":
                self._problems.add(line, _FORMS)
            return "${"

        return _VARIABLE.sub(one, text)

    def _variable(self, name: str, default: str | None, line: int) -> str:
        value = self._environment.get(name, "")
        if value or (default is None and name in self._environment):
            return value
        if default is None:
            self._problems.add(
                line,
                f"${{{name}}} is not set in the environment; ${{{name}:-text}} has a default",
            )
        return default or ""

    def _content(self, name: str, line: int) -> str:
        path = self._folder / Path(name.strip()).expanduser()
        try:
            with path.open("rb") as file:
                data = file.read(_FILE_BYTES + 1)
            content = data.decode().strip()
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            self._problems.add(line, f"cannot read the secret in {path}: {why}")
            return ""
        if len(data) > _FILE_BYTES or not content:
            size = "empty" if not content else f"larger than {_FILE_BYTES >> 10} KiB"
            self._problems.add(line, f"cannot use the secret in {path}: the file is {size}")
            return ""
        self._problems.secrets.add(content)
        return content
