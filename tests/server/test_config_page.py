"""The page of configuration keys and the tables that read them name the same keys; the pages'
configurations are read without a complaint.
"""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

from pelton.server import config, options
from pelton.server.config import (
    account_sharing,
    accounts,
    authorization,
    cluster,
    declared,
    jetstream,
    leafnodes,
    operator,
    origin_servers,
    permissions,
    tls,
    top,
    users,
    websocket,
)

DOCS = Path(__file__).parents[2] / "docs"
PAGE = DOCS / "reference" / "server-options.md"
# A ```conf block is a whole configuration file.
EXAMPLES = [
    pytest.param(text, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    for number, text in enumerate(
        re.findall(r"^```conf\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    )
]

# Heading of the page: what reads its keys. A few keys are read without a table; they stand here.
SECTIONS = {
    "The server": [top.TOP],
    "jetstream": [jetstream._KEYS],
    "jetstream.limits": [jetstream._LIMITS],
    "jetstream.limits.batch": [jetstream._BATCH_LIMITS],
    "jetstream.remotes": [origin_servers._FIELDS, ("url", "urls", "tls", "ca_file")],
    "authorization": [authorization._KEYS],
    "authorization.auth_callout": [authorization._CALLOUT],
    "Users": [users._KEYS],
    "Permissions": [permissions._KEYS],
    "Permissions: allow_responses": [permissions._RESPONSES],
    "resolver": [operator._RESOLVER],
    "accounts": [accounts._KEYS],
    "accounts.limits": [accounts._LIMITS],
    "accounts.jetstream": [accounts._JETSTREAM],
    "accounts.exports": [account_sharing._EXPORT_KEYS],
    "accounts.imports": [account_sharing._IMPORT_KEYS],
    "Mappings": [("dest", "destination", "weight", "cluster")],
    "tls": [tls._KEYS, tls._CLIENTS, tls._ROUTES],
    "websocket": [websocket._KEYS],
    "websocket.authorization": [websocket._AUTHORIZATION],
    "leafnodes": [leafnodes._KEYS],
    "leafnodes.authorization": [leafnodes._AUTHORIZATION],
    "leafnodes.authorization.users": [leafnodes._USER],
    "leafnodes.remotes": [leafnodes._REMOTE],
    "cluster": [cluster._CLUSTER],
    "kv": [declared._KEY_VALUE],
    "objects": [declared._OBJECTS],
    "Refused by name": [top.NOT_SERVED],
}
# Parts of tables above.
PARTS = (top.OPERATIONS, top.OPERATOR, top.DECLARED, tls._PAIR)


def described() -> dict[str, list[str]]:
    """The keys of each table of the page, by its heading."""
    text = PAGE.read_text().partition("\n## Configuration file\n")[2].partition("\n## ")[0]
    found = {}
    for section in text.split("\n### ")[1:]:
        heading, _, rest = section.partition("\n")
        first = [line.split("|")[1] for line in rest.splitlines() if line.startswith("| `")]
        keys = [key for cell in first for key in re.findall(r"`([^`]+)`", cell)]
        if keys:
            found[heading.replace("`", "")] = keys
    return found


def test_the_page_has_every_option() -> None:
    rows = PAGE.read_text().partition("\n## Options\n")[2].partition("\n## ")[0].splitlines()
    cells = [line.split("|")[1] for line in rows if line.startswith("| `-")]
    described = [name for cell in cells for name in re.findall(r"`-+(\w+)`", cell)]
    assert sorted(described) == sorted(options._FLAGS)


def test_each_table_of_the_page_has_the_keys_that_are_read() -> None:
    page = described()
    assert sorted(page) == sorted(SECTIONS)
    for heading, tables in SECTIONS.items():
        read = {key for table in tables for key in table}
        assert sorted(page[heading]) == sorted(read), heading  # each once


def test_there_is_no_other_table_of_keys() -> None:
    known = [table for tables in SECTIONS.values() for table in tables] + list(PARTS)
    for module in pkgutil.iter_modules(config.__path__):
        names = vars(importlib.import_module(f"{config.__name__}.{module.name}"))
        tables = {
            name: value
            for name, value in names.items()
            if not name.startswith("__") and isinstance(value, dict) and value
        }
        for name, value in tables.items():
            if all(map(callable, value.values())):
                assert any(value is table for table in known), f"{module.name}.{name}"


@pytest.mark.parametrize("text", EXAMPLES)
def test_configurations_that_are_shown_are_right(text: str) -> None:
    environ = dict.fromkeys(re.findall(r"\$([A-Z_]+)\b", text), "secret")
    _, warnings = config.read_config(text, environ=environ)
    assert warnings == []
