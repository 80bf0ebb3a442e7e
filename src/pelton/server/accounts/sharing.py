"""Checks which imports match which exports: authorization, cycles, subject transforms. Error texts are
nats-server's. The checks use settings only; core/broker/service_imports carries the messages.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from pelton.core.protocol.overlaps import Patterns
from pelton.core.protocol.subjects import literal, subset, valid
from pelton.engine.base.transforms import TransformError, parse
from pelton.server.settings.accounts import (
    SINGLETON,
    STREAMED,
    SYSTEM_ACCOUNT,
    AccountSettings,
    Export,
    Import,
)

Transform = Callable[[str], str | None]
TokenCheck = Callable[[AccountSettings, Export, Import, str], bool]
"""(exporter, export, import, importer's name) -> whether the import's activation token is valid."""

# Services of the system account that every account may import, each for itself.
SYSTEM_EXPORTS = (
    Export("$SYS.REQ.ACCOUNT.*.CONNZ", service=True, response=STREAMED, account_token_position=4),
    Export("$SYS.REQ.ACCOUNT.*.STATZ", service=True, response=STREAMED, account_token_position=4),
    Export("$SYS.DEBUG.SUBSCRIBERS", service=True),
    Export("$SYS.REQ.USER.*.INFO", service=True),
)
_PLACE = re.compile(r"\$([1-9][0-9]*)|\{\{\s*[wW]ildcard\s*\(\s*([0-9]+)\s*\)\s*\}\}")


class Exports:
    """The exports of one account, found by subject without a look at each of them."""

    def __init__(self, exports: Iterable[Export]) -> None:
        """Index these exports."""
        self._all = list(exports)
        self._equal: dict[tuple[bool, str], Export] = {}
        self._wider = {False: Patterns(), True: Patterns()}
        for number, export in enumerate(self._all):
            key = export.service, export.subject
            if key not in self._equal:
                self._equal[key] = export
                self._wider[export.service].add(export.subject, number)

    @property
    def steps(self) -> int:
        """Tokens looked at so far, for tests that they are few."""
        return sum(wider.steps for wider in self._wider.values())

    def of(self, subject: str, service: bool) -> Export | None:
        """The export that covers an import's subject: the equal one, else the first wider one."""
        return self._equal.get((service, subject)) or (
            self.wider(subject, service) if valid(subject) else None
        )

    def wider(self, subject: str, service: bool) -> Export | None:
        """The first export that matches everything that `subject` matches."""
        number = self._wider[service].first_covering(subject)
        return None if number < 0 else self._all[number]


def exports_of(exporter: AccountSettings) -> Exports:
    """The index of an account's exports, with those that the system account always has."""
    system = SYSTEM_EXPORTS if exporter.name == SYSTEM_ACCOUNT else ()
    return Exports([*exporter.exports, *system])


def may_import(
    exporter: AccountSettings,
    wanted: Import,
    importer: str,
    token: TokenCheck | None = None,
    exports: Exports | None = None,
) -> Export | None:
    """The export that permits an import; None when no export matches, or it excludes the importer.
    `exports`: the index of the exporter's exports, when the caller has it.
    """
    export = (exports or exports_of(exporter)).of(wanted.subject, wanted.service)
    if export is None:
        return None
    if export.account_token_position:
        place = export.account_token_position - 1
        tokens = wanted.subject.split(".")
        fits = export.subject != wanted.subject and place < len(tokens)
        return export if fits and tokens[place] == importer else None
    if export.token_required:
        fits = token is not None and token(exporter, export, wanted, importer)
        return export if fits else None
    if not export.accounts or importer in export.accounts:
        return export
    return None


def local_pattern(wanted: Import) -> str:
    """The importer's subjects as a pattern: `$1` and the like become wildcards."""
    local = wanted.local
    if "$" not in local and "{{" not in local:
        return local
    return ".".join("*" if _PLACE.fullmatch(token) else token for token in _local_tokens(wanted))


def stream_transform(wanted: Import) -> Transform | None:
    """The transform from the exporter's subjects to the importer's; None when they are equal or
    literal. Raises TransformError.
    """
    if literal(wanted.subject) or wanted.local == wanted.subject:
        return None
    target = ".".join(_local_tokens(wanted))
    _check_strict(wanted.subject, target)
    return parse(wanted.subject, target).carry


def service_transform(wanted: Import) -> Transform | None:
    """The transform from the importer's subjects to the exporter's; None when they are equal or
    literal. Raises TransformError.
    """
    if literal(wanted.subject) or wanted.local == wanted.subject:
        return None
    local = _local_tokens(wanted)
    _check_strict(wanted.subject, ".".join(local))
    # For each wildcard of the local pattern, in order: the number of the exporter's wildcard.
    places = [_number(token) for token in local if _PLACE.fullmatch(token)]
    number, tokens = 0, []
    for token in wanted.subject.split("."):
        if token == "*":
            number += 1
            token = f"${places.index(number) + 1}"
        tokens.append(token)
    return parse(local_pattern(wanted), ".".join(tokens)).carry


def _local_tokens(wanted: Import) -> list[str]:
    """The local subject with numbered wildcards, in the form of a destination."""
    number, tokens = 0, []
    for token in wanted.local.split("."):
        if token == "*":
            number += 1
            token = f"${number}"
        tokens.append(token)
    return tokens


def _number(token: str) -> int:
    match = _PLACE.fullmatch(token)
    assert match is not None
    return int(match[1] or match[2])


def _check_strict(source: str, target: str) -> None:
    for token in target.split("."):
        if token.startswith("{{") and not _PLACE.fullmatch(token):
            raise TransformError(
                "invalid mapping destination: the only mapping function allowed for import "
                f"transforms is {{{{Wildcard()}}}} in {token}"
            )
    used = [_number(token) for token in target.split(".") if _PLACE.fullmatch(token)]
    parse(source, target)
    if len(used) < source.split(".").count("*") or len(set(used)) < len(used):
        raise TransformError(
            "invalid mapping destination: not using all of the token wildcard(s) in " + target
        )


# -- a whole set of accounts


class _Added:
    """The imports of one kind that an account has so far."""

    def __init__(self) -> None:
        self.imports: list[Import] = []
        self.first: dict[tuple[str, str], Import] = {}  # (exporter, subject)
        self._subjects = Patterns()

    def append(self, wanted: Import, key: str, subject: str) -> None:
        """Add an import; a later one with this key is a duplicate."""
        self.first[wanted.account, key] = wanted
        self._subjects.add(subject, len(self.imports))
        self.imports.append(wanted)

    def colliding(self, subject: str) -> list[Import]:
        """The imports whose subjects overlap this one, in order."""
        return [self.imports[number] for number in sorted(self._subjects.colliding(subject))]

    @property
    def steps(self) -> int:
        return self._subjects.steps


class Imports:
    """The imports of a set of accounts, added one after the other."""

    def __init__(self, accounts: Iterable[AccountSettings]) -> None:
        """Start with these accounts and without imports."""
        self.accounts = {account.name: account for account in accounts}
        self._exports = {name: exports_of(account) for name, account in self.accounts.items()}
        self._streams = {name: _Added() for name in self.accounts}
        self._services = {name: _Added() for name in self.accounts}

    @property
    def steps(self) -> int:
        """Tokens compared so far, for tests that they are few."""
        parts = (self._exports, self._streams, self._services)
        return sum(each.steps for part in parts for each in part.values())

    def add(self, importer: str, wanted: Import, token: TokenCheck | None = None) -> str:
        """Add an import; returns its error, "" when it is valid."""
        exporter = self.accounts[wanted.account]
        if not valid(wanted.subject) or not valid(local_pattern(wanted)):
            return "invalid subject"
        exports = self._exports[wanted.account]
        if may_import(exporter, wanted, importer, token, exports) is None:
            what = "service" if wanted.service else "stream"
            return f"{what} import not authorized"
        if wanted.prefix and not literal(wanted.prefix.removesuffix(".")):
            return "stream import prefix can not contain wildcard tokens"
        try:
            return (
                self._service(importer, wanted)
                if wanted.service
                else self._stream(importer, wanted)
            )
        except TransformError as error:
            what = "service" if wanted.service else "stream"
            pair = (
                (wanted.local, wanted.subject)
                if wanted.service
                else (
                    wanted.subject,
                    wanted.local,
                )
            )
            return (
                f"failed to create mapping transform for {what} import subject from "
                f'"{pair[0]}" to "{pair[1]}": {error}'
            )

    def _stream(self, importer: str, wanted: Import) -> str:
        for subject in (local_pattern(wanted), wanted.subject):
            if self._stream_circle(wanted.account, subject, {importer}):
                return "import forms a cycle"
        stream_transform(wanted)
        added = self._streams[importer]
        if (wanted.account, wanted.subject) in added.first:
            return "stream import already exists"
        added.append(wanted, wanted.subject, local_pattern(wanted))
        return ""

    def _stream_circle(self, name: str, subject: str, visited: set[str]) -> bool:
        if self._exports[name].wider(subject, False) is None:
            return False
        for each in self._streams[name].colliding(subject):
            if each.account in visited:
                return True
            visited.add(name)
            local = local_pattern(each)
            narrower = local if subset(local, subject) else subject
            if self._stream_circle(each.account, narrower, visited):
                return True
        return False

    def _service(self, importer: str, wanted: Import) -> str:
        subject = local_pattern(wanted)
        if self._service_circle(wanted.account, subject, {importer}):
            return "import forms a cycle"
        service_transform(wanted)
        added = self._services[importer]
        other = added.first.get((wanted.account, subject))
        if other is not None:
            return (
                f'duplicate service import subject "{subject}", previously used in import '
                f'for account "{other.account}", subject "{other.subject}"'
            )
        added.append(wanted, subject, wanted.subject)
        return ""

    def _service_circle(self, name: str, subject: str, visited: set[str]) -> bool:
        for each in self._services[name].colliding(subject):
            if each.account in visited:
                return True
            visited.add(name)
            local = local_pattern(each)
            narrower = local if subset(local, subject) else subject
            if self._service_circle(each.account, narrower, visited):
                return True
        return False


def problems(accounts: list[AccountSettings], *, no_system: bool = False) -> Iterator[str]:
    """All errors in the exports and imports of a configuration."""
    names = {account.name for account in accounts}
    imports = Imports(accounts)
    for account in accounts:
        exports = Exports(account.exports)
        for export in account.exports:
            yield from _export_problems(exports, export, names, no_system)
    for service in (False, True):
        what = "service" if service else "stream"
        for account in accounts:
            for wanted in account.imports:
                if wanted.service != service:
                    continue
                if wanted.account not in names:
                    yield f'"{wanted.account}" account not defined for {what} import'
                    continue
                problem = imports.add(account.name, wanted)
                if problem:
                    yield f'Error adding {what} import "{wanted.subject}": {problem}'


def _export_problems(
    exports: Exports, export: Export, names: set[str], no_system: bool
) -> Iterator[str]:
    what = "service" if export.service else "stream"
    for name in export.accounts or ():
        if name not in names:
            yield f'"{name}" account not defined for {what} export'
    position = export.account_token_position
    tokens = export.subject.split(".")
    if position and (position > len(tokens) or tokens[position - 1] != "*"):
        yield f'Error adding {what} export "{export.subject}": sublist: invalid subject'
    latency = export.latency
    if latency is None:
        return
    head = f'Error adding service latency sampling for "{export.subject}"'
    if no_system:
        yield f"{head}: system account not setup"
    elif not literal(latency.subject) or exports.of(latency.subject, True):
        yield f'{head} on subject "{latency.subject}": invalid publish subject'
    elif export.response != SINGLETON:
        yield f'{head} on subject "{latency.subject}": bad service response type'
