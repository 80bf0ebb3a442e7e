"""Audit archives: what servers said at one moment, in a ZIP file that the ``nats`` command reads and writes, too.

    capture/clusters/<cluster>/<server>/<kind>/0001.json                          a page of a server
    capture/accounts/<account>/servers/<cluster>__<server>/<kind>/0001.json       of an account there
    capture/accounts/<account>/streams/<stream>/replicas/<cluster>__<server>/stream_info/0001.json
    capture/profiles/<cluster>/<server>__<profile>.prof
    capture/misc/<name>.json                                                      about the archive

``capture/misc/manifest.json`` has the tags of every file: ``[{"Name": "server", "Value": "a"}, ...]``.
Readers go by the tags, not by the paths.
"""

from __future__ import annotations

import json
import os
import zipfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

UNCLUSTERED = "unclustered"
"""The name of the cluster of servers that are in none."""

# page of the system account -> the kind of its files
SERVER_KINDS = {
    "HEALTHZ": "health",
    "VARZ": "variables",
    "EXPVARZ": "exp_variables",
    "CONNZ": "connections",
    "ROUTEZ": "routes",
    "GATEWAYZ": "gateways",
    "LEAFZ": "leafs",
    "SUBSZ": "subs",
    "JSZ": "jetstream_info",
    "ACCOUNTZ": "accounts",
}
ACCOUNT_KINDS = {
    "CONNZ": "account_connections",
    "LEAFZ": "account_leafs",
    "SUBSZ": "account_subs",
    "JSZ": "account_jetstream_info",
    "INFO": "account_info",
    "RAFTZ": "account_raftz",
    "IPQUEUESZ": "account_ipqueues",
}
STREAM_KIND = "stream_info"
METADATA = "audit_gather_metadata"
_LOG = "audit_gather_log"
_MANIFEST = "capture/misc/manifest.json"
_PAGES = 9999

Tags = dict[str, str]


class ArchiveError(ValueError):
    """The file is no audit archive, or a damaged one; or a name can't be part of a path."""


class Writer:
    """Writes an archive beside its place, and moves it there when it is closed."""

    def __init__(self, path: Path, when: tuple[int, int, int, int, int, int]) -> None:
        """``when`` is the time of all files: year, month, day, hour, minute, second. OSError."""
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._when = max(when, (1980, 1, 1, 0, 0, 0))  # the first time that a ZIP file can say
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        self._file = os.fdopen(descriptor, "wb")
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED)
        self._manifest: dict[str, Tags] = {}
        self._numbers: dict[str, int] = {}

    def add(self, tags: Tags, content: object) -> None:
        """Add a page with these tags; ArchiveError for a name with a slash."""
        folder = _folder(tags)
        number = self._numbers.get(folder, 0) + 1
        if number > _PAGES:
            raise ArchiveError(f"{folder} has more than {_PAGES} pages")
        self._numbers[folder] = number
        self._write(f"{folder}/{number:04}.json", tags, _json(content))

    def add_profile(self, tags: Tags, content: bytes) -> None:
        """Add a profile of a server: with the tags server, cluster and profile_name."""
        _check(tags.values())
        place = f"capture/profiles/{tags['cluster']}/{tags['server']}__{tags['profile_name']}.prof"
        self._write(place, {**tags, "artifact_type": "profile"}, content)

    def close(self, metadata: Mapping[str, str], log: str) -> None:
        """Write the metadata of the archive, and put it in its place."""
        self._write(f"capture/misc/{_LOG}.log", {"special": _LOG}, log.encode())
        self._write(f"capture/misc/{METADATA}.json", {"special": METADATA}, _json(metadata))
        manifest = {
            path: [{"Name": name, "Value": value} for name, value in tags.items()]
            for path, tags in self._manifest.items()
        }
        self._write(_MANIFEST, {}, _json(manifest))
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._part.replace(self._path)

    def abandon(self) -> None:
        """Leave nothing behind."""
        self._zip.close()
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, path: str, tags: Tags, content: bytes) -> None:
        self._manifest[path] = tags
        info = zipfile.ZipInfo(path, self._when)
        info.compress_type = zipfile.ZIP_DEFLATED
        self._zip.writestr(info, content)


def _json(content: object) -> bytes:
    return json.dumps(content, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace")


def _folder(tags: Tags) -> str:
    _check(tags.values())
    cluster, server, kind = tags["cluster"], tags["server"], tags["artifact_type"]
    account, stream = tags.get("account"), tags.get("stream")
    if account is None:
        return f"capture/clusters/{cluster}/{server}/{kind}"
    at = f"capture/accounts/{account}"
    if stream is None:
        return f"{at}/servers/{cluster}__{server}/{kind}"
    return f"{at}/streams/{stream}/replicas/{cluster}__{server}/{kind}"


def _check(names: Any) -> None:
    for name in names:
        if not name or name in (".", "..") or "/" in name or "\\" in name:
            raise ArchiveError(f'"{name}" can\'t be part of a path in an archive')


class Reader:
    """Reads an archive; ArchiveError for any other file, OSError."""

    def __init__(self, path: Path) -> None:
        """Opens the file and reads its contents."""
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path)
            manifest = json.loads(self._zip.read(_MANIFEST))
            self._tags: dict[str, Tags] = {
                name: {each["Name"]: each["Value"] for each in tags}
                for name, tags in manifest.items()
            }
        except KeyError:
            raise ArchiveError(f"{path} is no audit archive: it has no manifest") from None
        except (zipfile.BadZipFile, ValueError, TypeError, AttributeError) as error:
            raise ArchiveError(f"{path} is no audit archive: {error}") from None
        missing = set(self._tags) - set(self._zip.namelist())
        if missing:
            raise ArchiveError(f"{path}: {min(missing)} is missing")

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def servers(self) -> list[tuple[str, str]]:
        """(cluster, name) of every server, sorted."""
        found = {
            (tags["cluster"], tags["server"])
            for tags in self._tags.values()
            if "server" in tags and "cluster" in tags
        }
        return sorted(found)

    def clusters(self) -> dict[str, list[str]]:
        """The names of the servers of each cluster."""
        found: dict[str, list[str]] = {}
        for cluster, server in self.servers():
            found.setdefault(cluster, []).append(server)
        return found

    def accounts(self) -> list[str]:
        """The names of the accounts, sorted."""
        return sorted({tags["account"] for tags in self._tags.values() if "account" in tags})

    def pages(self, **wanted: str) -> Iterator[tuple[Tags, Any]]:
        """The pages with all these tags and their content, in the order of paths; ArchiveError."""
        for path in sorted(self._tags):
            tags = self._tags[path]
            if path.endswith(".json") and wanted.items() <= tags.items():
                yield tags, self._content(path)

    def profiles(self) -> Iterator[tuple[Tags, bytes]]:
        """The profiles."""
        for path in sorted(self._tags):
            if self._tags[path].get("artifact_type") == "profile":
                yield self._tags[path], self._zip.read(path)

    def metadata(self) -> dict[str, str]:
        """The metadata of the archive: when and where it was gathered."""
        return next((content for _, content in self.pages(special=METADATA)), {})

    def _content(self, path: str) -> Any:
        try:
            return json.loads(self._zip.read(path))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise ArchiveError(f"{self._path}: {path} can't be read: {error}") from None
