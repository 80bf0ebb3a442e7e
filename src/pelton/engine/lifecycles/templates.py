"""Stream templates of 2020: the first message of a subject creates a stream for this subject, which stores the message.

The templates of an account are files; a stream names its template in its metadata. A template receives the messages
of its subjects as a stream does, and takes only those for which there is no stream yet. It begins when all streams
are open.
"""

from collections.abc import Callable

from pelton.api import errors_generated as errors
from pelton.api.calls import Response
from pelton.api.codec import JsonError, decode_request, encode
from pelton.api.dialects.configurations import DialectError
from pelton.api.dialects.templates import (
    OWNER,
    Template,
    TemplateCall,
    config_of,
    stream_name,
)
from pelton.api.errors import ApiError
from pelton.core.broker.reactor import Connection
from pelton.core.broker.receivers import CallbackSink
from pelton.core.broker.startup_gate import StartupGate
from pelton.engine.account import limits
from pelton.engine.account.account import JetStreamAccount
from pelton.engine.base.settings import SECOND
from pelton.engine.config import stream_config
from pelton.engine.files.checksummed_files import BadFileError, DamagedFileError, unsealed

_NO_ROOM = frozenset(
    error().body().err_code
    for error in (
        errors.MaximumStreamsLimitError,
        errors.MemoryResourcesExceededError,
        errors.StorageResourcesExceededError,
    )
)
Make = Callable[[str, bytes], Response | None]
"""Carries out a call of today's API: the subject behind `$JS.API.`, and the body."""


class Templates:
    """The templates of one account."""

    def __init__(self, account: JetStreamAccount, make: Make) -> None:
        """Read nothing before `open`."""
        self._account = account
        self._make = make
        self._templates: dict[str, Template] = {}
        self._sinks: dict[str, CallbackSink] = {}
        self._full: set[str] = set()  # templates whose limit was reported
        # what `_streams` found at this revision of the account
        self._found: dict[str, list[str]] = {}
        self._found_at = -1
        # template -> (revision, time): until then the account has no room for another stream
        self._no_room: dict[str, tuple[int, int]] = {}
        self._quiet_until_ns = 0  # no report of a failure before this time,
        self._unreported = 0  # and so many failures since the last one

    def open(self) -> None:
        """Read the templates and listen. One that cannot be read is reported, and stays as it is."""
        account = self._account
        for name in account.files.template_names():
            try:
                found = account.files.read_template(name, _decoded, account.report)
            except (BadFileError, OSError) as error:
                account.report(f"cannot read template {name}: {error}")
                continue
            if found is not None:
                self._listen(found)

    def close(self) -> None:
        """Stop listening; the files stay."""
        for name in list(self._templates):
            self._forget(name)

    # -- requests

    def answer(self, call: TemplateCall) -> object:
        """Carry out a request. DialectError: it is refused."""
        if call.action == "list":
            return sorted(self._templates)
        if call.given is not None:
            self._create(call.given)
            return None
        template = self._templates.get(call.name)
        if template is None:
            raise DialectError("template not found")
        if call.action == "info":
            return template, self._streams(template)
        self._delete(template)
        return None

    def _create(self, given: Template) -> None:
        account = self._account
        if given.name in self._templates:
            raise DialectError(f'template with name "{given.name}" already exists')
        config = config_of(given, "_", given.config.subjects)
        try:
            stream_config.check_create(config)
            stream_config.checked(
                config,
                pedantic=False,
                find=account.config_of,
                caps=limits.stream_caps(account, config),
            )
            account.files.write_template(given.name, encode(given))
        except ApiError as error:
            raise DialectError(error.body().description) from None
        except OSError as error:
            raise DialectError(f"could not store the template: {error}") from None
        self._listen(given)

    def _delete(self, template: Template) -> None:
        """Remove a template with its streams."""
        for name in list(self._streams(template)):
            response = self._make(f"STREAM.DELETE.{name}", b"")
            if response is not None and response.error is not None:
                raise DialectError(response.error.description)
        try:
            self._account.files.remove_template(template.name)
        except OSError as error:
            raise DialectError(f"could not remove the template: {error}") from None
        self._forget(template.name)

    def _streams(self, template: Template) -> list[str]:
        """Return the names of a template's streams, sorted."""
        account = self._account
        if self._found_at != account.revision:
            self._found_at = account.revision
            self._found = {}
            for name, entry in sorted(account.streams.items()):
                owner = entry.config.metadata.get(OWNER)
                if owner is not None:
                    self._found.setdefault(owner, []).append(name)
        return self._found.get(template.name, [])

    # -- messages

    def _listen(self, template: Template) -> None:
        sink = CallbackSink(lambda *message: self._take(template, *message))
        self._templates[template.name], self._sinks[template.name] = template, sink
        for subject in template.config.subjects:
            self._account.router.attach(subject, sink)

    def _forget(self, name: str) -> None:
        template, sink = self._templates.pop(name), self._sinks.pop(name)
        self._full.discard(name)
        for subject in template.config.subjects:
            self._account.router.detach(subject, sink)

    def _take(
        self,
        template: Template,
        source: Connection | None,
        subject: str,
        reply: str,
        headers: bytes,
        body: bytes,
    ) -> bool:
        """Make the stream of a new subject and give it the message; False: it is not taken."""
        account, name = self._account, stream_name(subject)
        if name in account.streams or name in account.offline:
            return False
        if len(self._streams(template)) >= template.max_streams:
            self._report_full(template, subject)
            return False
        if not self._may_have_room(template):
            return False
        config = config_of(template, name, [subject])
        response = self._make(f"STREAM.CREATE.{name}", encode(config))
        entry = account.streams.get(name)
        if entry is None:
            self._failed(template, name, response)
            return False
        self._full.discard(template.name)
        # the stream listens now, and would miss the message that made it
        gate = StartupGate()
        gate.hold(source, subject, reply, headers, body, entry.core)
        gate.pass_on(entry.core)
        return True

    def _may_have_room(self, template: Template) -> bool:
        """Whether the account may have room for a stream: not right after a create was refused."""
        revision, until_ns = self._no_room.get(template.name, (-1, 0))
        return revision != self._account.revision or self._account.now_ns >= until_ns

    def _failed(self, template: Template, name: str, response: Response | None) -> None:
        """Note and report that a stream cannot be created."""
        account, error = self._account, response.error if response is not None else None
        if error is not None and error.err_code in _NO_ROOM:
            self._no_room[template.name] = account.revision, account.now_ns + SECOND
        self._unreported += 1
        if account.now_ns < self._quiet_until_ns:
            return
        self._quiet_until_ns = account.now_ns + SECOND
        why = error.description if error is not None else "no answer"
        more = (
            f" ({self._unreported - 1} more since the last report)" if self._unreported > 1 else ""
        )
        account.report(f"template {template.name} cannot create stream {name}: {why}{more}")
        self._unreported = 0

    def _report_full(self, template: Template, subject: str) -> None:
        if template.name not in self._full:
            self._full.add(template.name)
            most = template.max_streams
            self._account.report(
                f"template {template.name} has its {most} streams and creates none for subject {subject}"
            )


def _decoded(path: str, data: bytes) -> Template:
    try:
        return decode_request(Template, unsealed(path, data), strict=False)
    except JsonError as error:
        raise DamagedFileError(f"{path}: {error}") from None
