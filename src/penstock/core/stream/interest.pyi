"""Interest and workqueue retention: which messages of a stream some consumer still needs."""

from penstock.core.stream.stream import Stream

class InterestRetention:
    """The retention of a stream's messages; handed to ``Stream.configure``."""

    def __init__(self, stream: Stream) -> None: ...
