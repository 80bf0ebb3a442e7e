"""Interest and workqueue retention: which messages of a stream a consumer still needs."""

from pelton.core.stream.stream import Stream

class InterestRetention:
    """Decides which messages a stream keeps for its consumers; passed to ``Stream.configure``."""

    def __init__(self, stream: Stream) -> None: ...
