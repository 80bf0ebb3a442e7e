"""The section ``lineage``: where events of OpenLineage about each run go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pelton.pipeline.description.keys import LINEAGE
from pelton.spark.parsing import OptionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pelton.pipeline.description.fields import Fields

NAMESPACE = "pelton"


@dataclass(frozen=True)
class Lineage:
    """A server, a file, or both; ``namespace`` is that of the jobs."""

    url: str | None = None
    file: str | None = None
    namespace: str = NAMESPACE
    api_key: str | None = field(default=None, repr=False)


def read_lineage(
    fields: Fields, beside: Callable[[str], str], note_secret: Callable[[str], None]
) -> Lineage:
    """The section; adds its faults to those of the file. ``beside`` makes paths absolute."""
    url = fields.parsed("url", _url)
    file = fields.text("file") if fields.has("file") else None
    namespace = fields.text("namespace") if fields.has("namespace") else None
    api_key = fields.text("apiKey") if fields.has("apiKey") else None
    fields.finish(LINEAGE)
    if not fields.has("url") and not fields.has("file"):
        fields.problem("url", "give url, file or both")
    if api_key is not None:
        note_secret(api_key)
    return Lineage(url, None if file is None else beside(file), namespace or NAMESPACE, api_key)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        right = False
    if not right:
        raise OptionError("the address of a server of OpenLineage, such as http://localhost:5000")
    return text
