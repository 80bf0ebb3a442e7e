"""Finding the end of a JSON document, or its first fault; and replacing lone surrogates in texts.

The scan reads the bytes once, with a stack of its own, and builds no values: a megabyte takes some milliseconds. `api/scan` has
the error texts.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc

cdef extern from "Python.h":
    int PyUnicode_4BYTE_KIND
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    uint32_t PyUnicode_READ_CHAR(object text, Py_ssize_t at)
    object PyUnicode_FromKindAndData(int kind, const void* data, Py_ssize_t n)

# what `document` finds at a position
VALUE = 0            # something else than a value begins
KEY = 1              # ... than a key in quotation marks
COLON = 2            # ... than the colon behind a key
MEMBER = 3           # ... than a comma or the end behind a member of an object
ELEMENT = 4          # ... behind an element of a list
NUMBER = 5           # a number goes on with what is no number; the position is its begin
STRING = 6           # a control character, or the end, in a string
ESCAPE = 7           # an escape that is none; the position is that of its backslash
WORD = 8             # a letter of true, false or null is another one
DEPTH = 9            # too many lists and objects in each other
DIGIT = 10           # something else than a digit behind a minus

cdef enum:
    F_VALUE = 0
    F_KEY = 1
    F_COLON = 2
    F_MEMBER = 3
    F_ELEMENT = 4
    F_NUMBER = 5
    F_STRING = 6
    F_ESCAPE = 7
    F_WORD = 8
    F_DEPTH = 9
    F_DIGIT = 10
    GOOD = -1


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t' or c == c'\r' or c == c'\n'


cdef inline bint is_digit(char c) noexcept nogil:
    return c'0' <= c <= c'9'


cdef inline int hex_of(uint32_t c) noexcept nogil:
    if c'0' <= c <= c'9':
        return <int>c - c'0'
    if c'a' <= c <= c'f':
        return <int>c - c'a' + 10
    if c'A' <= c <= c'F':
        return <int>c - c'A' + 10
    return -1


cdef inline Py_ssize_t past_blanks(const char* s, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    while at < n and is_blank(s[at]):
        at += 1
    return at


cdef int string_end(const char* s, Py_ssize_t n, Py_ssize_t* at) noexcept nogil:
    # `at` is at the opening mark, and afterwards behind the closing one, or at what is wrong.
    cdef Py_ssize_t k = at[0] + 1, j
    while k < n and s[k] != c'"':
        if <unsigned char>s[k] < 0x20:
            at[0] = k
            return F_STRING
        if s[k] == c'\\':
            at[0] = k
            if k + 1 >= n:
                return F_ESCAPE
            if s[k + 1] == c'u':
                for j in range(k + 2, k + 6):
                    if j >= n or hex_of(<unsigned char>s[j]) < 0:
                        return F_ESCAPE
                k += 6
                continue
            if not (s[k + 1] == c'"' or s[k + 1] == c'\\' or s[k + 1] == c'/' or s[k + 1] == c'b' or s[k + 1] == c'f'
                    or s[k + 1] == c'n' or s[k + 1] == c'r' or s[k + 1] == c't'):
                return F_ESCAPE
            k += 2
            continue
        k += 1
    at[0] = k
    if k >= n:
        return F_STRING
    at[0] = k + 1
    return GOOD


cdef int number_end(const char* s, Py_ssize_t n, Py_ssize_t* at) noexcept nogil:
    # The longest number that begins here; what looks as if it went on is a fault.
    cdef Py_ssize_t start = at[0], k = start, j
    if s[k] == c'-':
        k += 1
    if k >= n or not is_digit(s[k]):
        at[0] = start + 1
        return F_DIGIT
    if s[k] == c'0':
        k += 1
    else:
        while k < n and is_digit(s[k]):
            k += 1
    if k + 1 < n and s[k] == c'.' and is_digit(s[k + 1]):
        k += 1
        while k < n and is_digit(s[k]):
            k += 1
    if k < n and (s[k] == c'e' or s[k] == c'E'):
        j = k + 1
        if j < n and (s[j] == c'+' or s[j] == c'-'):
            j += 1
        if j < n and is_digit(s[j]):
            while j < n and is_digit(s[j]):
                j += 1
            k = j
    if k < n and (s[k] == c'.' or s[k] == c'e' or s[k] == c'E'):
        at[0] = start
        return F_NUMBER
    at[0] = k
    return GOOD


cdef int word_end(const char* s, Py_ssize_t n, Py_ssize_t* at) noexcept nogil:
    cdef const char* word
    cdef Py_ssize_t k = at[0]
    if s[k] == c't':
        word = b"true"
    elif s[k] == c'f':
        word = b"false"
    elif s[k] == c'n':
        word = b"null"
    else:
        return F_VALUE
    while word[0]:
        at[0] = k
        if k >= n or s[k] != word[0]:
            return F_WORD
        k += 1
        word += 1
    at[0] = k
    return GOOD


cdef int document_end(const char* s, Py_ssize_t n, Py_ssize_t* at, char* stack, Py_ssize_t depth_max) noexcept nogil:
    cdef Py_ssize_t k = at[0], depth = 0
    cdef int fault
    cdef bint keyed = False                     # a key must be here
    while True:
        k = past_blanks(s, k, n)
        if keyed:
            at[0] = k
            if k >= n or s[k] != c'"':
                return F_KEY
            fault = string_end(s, n, at)
            if fault != GOOD:
                return fault
            k = at[0] = past_blanks(s, at[0], n)
            if k >= n or s[k] != c':':
                return F_COLON
            keyed = False
            k = past_blanks(s, k + 1, n)
        at[0] = k
        if k >= n:
            return F_VALUE
        if s[k] == c'{' or s[k] == c'[':
            if depth == depth_max:
                return F_DEPTH
            stack[depth] = s[k]
            depth += 1
            k = past_blanks(s, k + 1, n)
            if k < n and s[k] == (c'}' if stack[depth - 1] == c'{' else c']'):
                k += 1
                depth -= 1
            else:
                keyed = stack[depth - 1] == c'{'
                continue
        else:
            if s[k] == c'"':
                fault = string_end(s, n, at)
            elif s[k] == c'-' or is_digit(s[k]):
                fault = number_end(s, n, at)
            else:
                fault = word_end(s, n, at)
            if fault != GOOD:
                return fault
            k = at[0]
        # a value is complete: what follows it, up the stack
        while depth:
            k = past_blanks(s, k, n)
            if k < n and s[k] == c',':
                k += 1
                keyed = stack[depth - 1] == c'{'
                break
            if k < n and s[k] == (c'}' if stack[depth - 1] == c'{' else c']'):
                k += 1
                depth -= 1
                continue
            at[0] = k
            return F_MEMBER if stack[depth - 1] == c'{' else F_ELEMENT
        else:
            at[0] = k
            return GOOD


def document(text: bytes, start: int, depth_max: int) -> tuple:
    """(end, -1) of the document that starts here, or (position, fault): one of the constants above."""
    cdef Py_ssize_t at = start, n = PyBytes_GET_SIZE(text), most = depth_max
    cdef const char* s = PyBytes_AS_STRING(text)
    cdef int fault
    cdef char* stack = <char*>malloc(<size_t>most + 1)
    if stack == NULL:
        raise MemoryError
    with nogil:
        fault = document_end(s, n, &at, stack, most)
    free(stack)
    return at, fault


def blanks(text: bytes, start: int) -> int:
    """The first position from here on that is no blank."""
    return past_blanks(PyBytes_AS_STRING(text), start, PyBytes_GET_SIZE(text))


def unicode_only(text: str, escapes: bool = False) -> str:
    """The same text with each lone surrogate as U+FFFD; `escapes`: those that are written as \\uD800 in a JSON document, too."""
    cdef Py_ssize_t n = PyUnicode_GET_LENGTH(text), k = 0, j
    cdef uint32_t c, high, low
    cdef uint32_t* out
    cdef bint changed = False
    if text.isascii() and not escapes:
        return text
    out = <uint32_t*>malloc((<size_t>n + 1) * sizeof(uint32_t))
    if out == NULL:
        raise MemoryError
    while k < n:
        c = PyUnicode_READ_CHAR(text, k)
        if 0xD800 <= c <= 0xDFFF:
            c = 0xFFFD
            changed = True
        out[k] = c
        k += 1
        if c != c'\\' or not escapes or k >= n:
            continue
        out[k] = PyUnicode_READ_CHAR(text, k)
        k += 1
        if out[k - 1] != c'u' or k + 4 > n:
            continue
        high = escaped(text, k)
        for j in range(k, k + 4):
            out[j] = PyUnicode_READ_CHAR(text, j)
        k += 4
        if 0xD800 <= high <= 0xDBFF and k + 6 <= n and PyUnicode_READ_CHAR(text, k) == c'\\' and (
                PyUnicode_READ_CHAR(text, k + 1) == c'u'):
            low = escaped(text, k + 2)
            if 0xDC00 <= low <= 0xDFFF:
                for j in range(k, k + 6):
                    out[j] = PyUnicode_READ_CHAR(text, j)
                k += 6
                continue
        if 0xD800 <= high <= 0xDFFF:
            out[k - 4] = out[k - 3] = out[k - 2] = c'f'
            out[k - 1] = c'd'
            changed = True
    made = PyUnicode_FromKindAndData(PyUnicode_4BYTE_KIND, out, n) if changed else text
    free(out)
    return made


cdef uint32_t escaped(object text, Py_ssize_t at) noexcept:
    cdef uint32_t value = 0
    cdef Py_ssize_t j
    for j in range(at, at + 4):
        value = value * 16 + <uint32_t>max(hex_of(PyUnicode_READ_CHAR(text, j)), 0)
    return value
