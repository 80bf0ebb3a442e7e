"""The nodes of a subscription trie: children by token, and the objects that end at a node.

Few children and few objects are lists that are looked through; many are dicts, so that to remove one of a million
objects of one pattern takes no longer than one of ten. Objects are told apart by identity; the same one may be held several times.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.ref cimport PyObject
from libc.string cimport memcmp

cdef enum:
    FEW_KIDS = 8                # scanned; more are looked up by hash
    FEW_VALUES = 64             # looked for one by one; more have keys


@cython.final
@cython.trashcan(True)
cdef class Node:
    """A token of the trie."""


cdef Node new_node(bytes token):
    cdef Node node = Node.__new__(Node)
    node.token = token
    return node


cdef Node literal_kid(Node node, const char* s, const char* stop):
    # The child of a literal token, or None.
    cdef Py_ssize_t i
    cdef Py_ssize_t size = stop - s
    cdef Node kid
    cdef PyObject* found
    if node.kids is not None:
        for i in range(PyList_GET_SIZE(node.kids)):
            kid = <Node>PyList_GET_ITEM(node.kids, i)
            if PyBytes_GET_SIZE(kid.token) == size and memcmp(PyBytes_AS_STRING(kid.token), s, <size_t>size) == 0:
                return kid
        return None
    if node.index is not None:
        found = PyDict_GetItem(node.index, PyBytes_FromStringAndSize(s, size))
        if found != NULL:
            return <Node>found
    return None


cdef Node kid_to_insert(Node node, const char* s, const char* stop):
    # The child of any token, made when it is not there.
    cdef Node kid
    if is_star(s, stop):
        if node.star is None:
            node.star = new_node(b"*")
        return node.star
    if is_tail(s, stop):
        if node.tail is None:
            node.tail = new_node(b">")
        return node.tail
    kid = literal_kid(node, s, stop)
    if kid is not None:
        return kid
    kid = new_node(PyBytes_FromStringAndSize(s, stop - s))
    if node.index is not None:
        node.index[kid.token] = kid
    elif node.kids is None:
        node.kids = [kid]
    elif len(node.kids) < FEW_KIDS:
        node.kids.append(kid)
    else:
        node.index = {(<Node>other).token: other for other in node.kids}
        node.index[kid.token] = kid
        node.kids = None
    return kid


cdef int drop_kid(Node node, Node kid) except -1:
    if node.star is kid:
        node.star = None
    elif node.tail is kid:
        node.tail = None
    elif node.index is not None:
        del node.index[kid.token]
        if len(node.index) <= FEW_KIDS // 2:
            node.kids = list(node.index.values())
            node.index = None
    else:
        node.kids.remove(kid)
        if not node.kids:
            node.kids = None
    return 0


cdef inline bint is_bare(Node node):
    return (node.values is None and node.many is None and node.kids is None and node.index is None
            and node.star is None and node.tail is None)


cdef object key_of(object value, int nth):
    # Of the nth time that the very same object is held here.
    if nth:
        return <size_t><PyObject*>value, nth
    return <size_t><PyObject*>value


cdef int add_value(Node node, object value) except -1:
    cdef int nth = 0
    if node.many is None:
        if node.values is None:
            node.values = [value]
            return 0
        if PyList_GET_SIZE(node.values) < FEW_VALUES:
            node.values.append(value)
            return 0
        few, node.values = node.values, None
        node.many = {}
        for other in few:
            add_value(node, other)
    while key_of(value, nth) in node.many:
        nth += 1
    node.many[key_of(value, nth)] = value
    return 0


cdef bint take_value(Node node, object value) except -1:
    # Removes one occurrence of the very object.
    cdef Py_ssize_t i
    cdef int nth = 0
    if node.many is not None:
        while key_of(value, nth) in node.many:
            nth += 1
        if nth == 0:
            return False
        del node.many[key_of(value, nth - 1)]
        if len(node.many) <= FEW_VALUES // 2:
            node.values = list(node.many.values())
            node.many = None
        return True
    if node.values is None:
        return False
    for i in range(PyList_GET_SIZE(node.values)):
        if PyList_GET_ITEM(node.values, i) == <PyObject*>value:
            del node.values[i]
            if not node.values:
                node.values = None
            return True
    return False


cdef bint discard_below(Node node, const char* s, const char* end, object value) except -1:
    # Recursion is bounded by TOKENS_MAX: no deeper path was ever inserted.
    cdef const char* stop
    cdef Node kid
    cdef bint found
    if s > end:
        return take_value(node, value)
    stop = token_end(s, end)
    if is_star(s, stop):
        kid = node.star
    elif is_tail(s, stop):
        kid = node.tail
    else:
        kid = literal_kid(node, s, stop)
    if kid is None:
        return False
    found = discard_below(kid, stop + 1, end, value)
    if found and is_bare(kid):
        drop_kid(node, kid)
    return found
