"""The subjects of many messages at once, as columns: the parts of each, or why it is not the subject of an event.

A fleet of many devices has about as many subjects as messages, so those of the usual forms are
parsed by operations on all of them::

    plgd.owners.{owner}.devices.{device}.resource-links.{type}
    plgd.owners.{owner}.devices.{device}.metadata.{type}
    plgd.owners.{owner}.devices.{device}.resources.{href}.{type}[.leadrt[.{resource type}]]

`subjects.parse_subject` parses all other subjects, and would give the same result for these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .kinds import EVENT_TYPES, Kind
from .reasons import Reason, UndecodableEventError
from .subjects import LEAD, Subject, parse_subject

if TYPE_CHECKING:
    Numbers = np.ndarray[Any, Any]

TEXT = pa.string()
OWNER, DEVICE, KIND, LEAD_PLACE = 2, 4, 5, 8
TYPE_OF_RESOURCE, TYPE_OF_DEVICE = 7, 6
LEADS = rf"\A{LEAD}(\.[^.]+)*\z"
KINDS = (Kind.RESOURCES, Kind.LINKS, Kind.METADATA)


class Places:
    """The different subjects of some messages, and last a place for messages that have none."""

    def __init__(self, texts: pa.Array) -> None:
        """Take them apart; ``texts`` has no null."""
        self.texts = texts
        self.plain: dict[str, int] = {}
        """The event types, with their numbers in ``type_of``."""
        self.type_of = np.full(len(texts) + 1, -1, np.int64)
        """The number of each subject's event type, -1 for none."""
        self._found: dict[int, Subject | UndecodableEventError] = {}
        self._columns: dict[str, pa.Array] = {}
        self._tokens = Tokens(texts)
        types, codes = self._tokens.event_types()
        for name, code in zip(types, codes, strict=True):
            self.type_of[:-1][code] = self.plain.setdefault(name, len(self.plain))
        self._others = np.flatnonzero(self._tokens.is_other)
        for place in self._others.tolist():
            found = self.at(place)
            if isinstance(found, Subject):
                name = found.event_type
                self.type_of[place] = self.plain.setdefault(name, len(self.plain))

    def at(self, place: int) -> Subject | UndecodableEventError:
        """One of them."""
        found = self._found.get(place)
        if found is None:
            found = self._found[place] = self._parsed(place)
        return found

    def _parsed(self, place: int) -> Subject | UndecodableEventError:
        if place == len(self.texts):
            return UndecodableEventError(Reason.SUBJECT, "no subject")
        try:
            return parse_subject(self.texts[place].as_py())
        except UndecodableEventError as bad:
            return bad

    def column(self, name: str) -> pa.Array:
        """The ``owner_id``, ``device_id`` or ``lead_type`` of each."""
        if name not in self._columns:
            array = self._tokens.column(name)
            if len(self._others):
                told = [getattr(self.at(place), name, None) for place in self._others.tolist()]
                is_other = pa.array(self._tokens.is_other)
                array = pc.replace_with_mask(array, is_other, pa.array(told, TEXT))
            self._columns[name] = pa.concat_arrays([array, pa.nulls(1, TEXT)])
        return self._columns[name]


class Tokens:
    """The tokens of subjects; ``is_other`` are the subjects of no usual form."""

    def __init__(self, texts: pa.Array) -> None:
        """Split them."""
        split = pc.split_pattern(texts, ".", max_splits=LEAD_PLACE)
        offsets = split.offsets.to_numpy()
        self._tokens = split.values
        self._starts = offsets[:-1].astype(np.int64)
        self._counts = np.diff(offsets)
        self._leads = self._at(LEAD_PLACE, self._counts > LEAD_PLACE)
        kinds = self._kinds()
        usual = kinds >= 0
        is_empty = np.flatnonzero(_flags(pc.equal(self._tokens, "")))
        usual[np.searchsorted(offsets, is_empty, side="right") - 1] = False
        usual &= _flags(pc.fill_null(pc.match_substring_regex(self._leads, LEADS), True))
        self.is_other: Numbers = ~usual
        types = np.where(kinds == 0, TYPE_OF_RESOURCE, TYPE_OF_DEVICE)
        self._types = self._at(types, usual).dictionary_encode()
        known = [EVENT_TYPES.get(name) for name in self._types.dictionary.to_pylist()]
        kind_of = [
            KINDS.index(one.kind) if one is not None and one.kind in KINDS else -1 for one in known
        ]
        codes = self._types.indices.fill_null(len(known)).to_numpy()
        self.is_other |= np.array([*kind_of, -1])[codes] != kinds

    def _at(self, place: int | Numbers, there: Numbers) -> pa.Array:
        """The token at a place of each, null where there is none."""
        return self._tokens.take(pa.array(self._starts + place, mask=~there))

    def _kinds(self) -> Numbers:
        """The kind of each by its first tokens, a place in `KINDS`; -1 for no usual form."""
        there = self._counts > TYPE_OF_DEVICE
        is_hub = there.copy()
        for place, token in enumerate(("plgd", "owners", None, "devices")):
            if token is not None:
                is_hub &= _flags(pc.fill_null(pc.equal(self._at(place, there), token), False))
        kinds = self._at(KIND, there)
        sizes = (self._counts > TYPE_OF_RESOURCE, *[self._counts == TYPE_OF_DEVICE + 1] * 2)
        found = np.full(len(is_hub), -1)
        for number, (kind, fits) in enumerate(zip(KINDS, sizes, strict=True)):
            same = _flags(pc.fill_null(pc.equal(kinds, kind.value), False))
            found[is_hub & fits & same] = number
        return found

    def event_types(self) -> tuple[list[str], list[Numbers]]:
        """The event types of subjects of a usual form, and which subjects are of each."""
        codes = self._types.indices.fill_null(-1).to_numpy()
        codes = np.where(self.is_other, -1, codes)
        names = self._types.dictionary.to_pylist()
        of_each = [np.flatnonzero(codes == code) for code in range(len(names))]
        pairs = [(name, places) for name, places in zip(names, of_each, strict=True) if len(places)]
        return [name for name, _ in pairs], [places for _, places in pairs]

    def column(self, name: str) -> pa.Array:
        """The value of a part in subjects of a usual form; null for others."""
        usual = ~self.is_other
        if name == "lead_type":
            lead = pc.utf8_slice_codeunits(self._leads, len(LEAD) + 1)
            return pc.if_else(pa.array(usual), lead, None)
        return self._at(OWNER if name == "owner_id" else DEVICE, usual)


def _flags(array: pa.Array) -> Numbers:
    """An array of flags without nulls, as numpy has it."""
    flags: Numbers = array.to_numpy(zero_copy_only=False)
    return flags
