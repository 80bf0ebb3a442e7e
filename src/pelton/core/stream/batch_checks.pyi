"""The checks of an atomic batch at its commit."""

from pelton.core.stream.draft import Draft

class StagedBatch:
    """The messages of a batch before the one that a rule looks at; `Draft.notes[STAGED]`."""

    def get(self, subject: str, default: None = None) -> Draft | None:
        """The latest of these messages on a subject, as it will be stored; None: there is none."""
