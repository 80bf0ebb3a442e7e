VALUE: int
KEY: int
COLON: int
MEMBER: int
ELEMENT: int
NUMBER: int
STRING: int
ESCAPE: int
WORD: int
DEPTH: int
DIGIT: int

def document(text: bytes, start: int, depth_max: int) -> tuple[int, int]: ...
def blanks(text: bytes, start: int) -> int: ...
def unicode_only(text: str, escapes: bool = False) -> str: ...
