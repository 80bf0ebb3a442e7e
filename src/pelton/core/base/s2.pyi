"""S2 and snappy: blocks, and the framed stream of them."""

BLOCK_MAX: int

def compress(data: bytes) -> bytes:
    """One block; ValueError for more than BLOCK_MAX bytes."""

def decompress(block: bytes) -> bytes:
    """What a block holds; ValueError when it is damaged."""

class FrameWriter:
    """Bytes in, a framed stream out. Blocks are cut at ``block_bytes``."""

    def __init__(self, block_bytes: int = 262144) -> None:
        """ValueError unless 1 <= block_bytes <= BLOCK_MAX."""
    def put(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes; full blocks are compressed at once."""
    def finish(self) -> None:
        """Compress what is left."""
    def __len__(self) -> int:
        """Bytes of the stream that wait to be taken."""
    def take(self, count: int) -> bytes:
        """The next bytes of the stream, at most that many."""

class FrameReader:
    """A framed stream in, its bytes out, one block at a time: what waits compressed stays so."""

    def feed(self, data: bytes) -> None:
        """Take bytes of the stream."""
    def next(self) -> bytes | None:
        """The next decompressed block, or None: not there yet. ValueError when the stream is damaged, also from then on."""
    @property
    def waiting(self) -> int:
        """Bytes that were fed and not read."""
