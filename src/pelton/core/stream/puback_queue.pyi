"""PubAcks that wait until their message is as durable as its stream promises."""

def json_string(text: str) -> str:
    """A JSON string as Go's encoder writes it: ``<``, ``>`` and ``&`` escaped, other text unchanged."""
