"""S2 compression of a leaf node connection: the agreement of both servers, and the transport.

    hub   INFO {compression}            plain  ->
          <- plain            INFO {compression}   leaf        both switch behind these
    hub   INFO {compression, nonce}     S2     ->              CONNECT and the rest follow

Each write is a complete framed stream (core/base/s2). One encoder serves all levels.
"""

from pelton.core.base.s2 import FrameReader, FrameWriter
from pelton.core.broker.event_loop import EventLoop
from pelton.core.broker.reactor import Connection
from pelton.server.leaf.negotiation import Info, line
from pelton.server.leaf.node import LeafNode
from pelton.server.transports.pipe import Pipe
from pelton.server.transports.transport import Transport

NOT_SUPPORTED = "not supported"
OFF, ACCEPT, AUTO, FAST = "off", "accept", "s2_auto", "s2_fast"
LEVELS = frozenset((AUTO, "s2_uncompressed", FAST, "s2_better", "s2_best"))
STRANGER_BYTES = 64 * 1024  # the limit of waiting bytes before authentication


def agree(own: str, theirs: str) -> str:
    """The mode of a connection from the modes of both sides. ValueError when theirs is unknown."""
    if theirs in ("", NOT_SUPPORTED):
        return NOT_SUPPORTED
    if theirs == OFF or own == OFF:
        return OFF
    if theirs == ACCEPT:
        return OFF if own == ACCEPT else _settled(own)
    if theirs not in LEVELS:
        raise ValueError(f'unsupported compression mode "{theirs}"')
    return _settled(theirs if own == ACCEPT else own)


def _settled(mode: str) -> str:
    return FAST if mode == AUTO else mode


class CompressingTransport(Transport):
    """A transport of plain bytes until `start`, of S2 from then on."""

    __slots__ = ("_reader",)

    def __init__(self, event_loop: EventLoop, pipe: Pipe) -> None:
        """The arguments are those of Transport."""
        super().__init__(event_loop, pipe)
        self._reader: FrameReader | None = None

    def start(self) -> None:
        """Switch both directions to S2."""
        self._reader = FrameReader()

    def _encode(self, data: bytes) -> bytes:
        if self._reader is None:
            return data
        writer = FrameWriter()
        writer.put(data)
        writer.finish()
        return writer.take(len(writer))

    def _received(self, connection: Connection, data: memoryview) -> None:
        reader = self._reader
        if reader is None:
            self.event_loop.take_in(connection, data)
            return
        try:
            reader.feed(bytes(data))
            while not connection.closed and (block := reader.next()) is not None:
                self.event_loop.take_in(connection, block)
        except ValueError:
            self._end("Protocol Violation")
            return
        if reader.waiting > STRANGER_BYTES and not getattr(connection.session, "joined", False):
            self._end("Maximum Control Line Exceeded")


def negotiate(node: LeafNode, theirs: str, own: str, answer: Info) -> bool:
    """Agree on a mode, send it in INFO and switch.

    False: nothing was sent, and the connection stays as it is. ValueError when the other side's
    mode is unknown.
    """
    link, node.link = node.link, None
    assert link is not None
    node.compression = agree(own, theirs)
    if node.compression not in LEVELS:
        return False
    answer.compression = own if own == AUTO else node.compression
    if node.remote is not None:
        link.write(line(b"INFO", answer))  # directly: later writes are S2
        link.start()
    else:
        link.start()
        node.connection.write(line(b"INFO", answer))
    return True
