"""A client's operations: CONNECT, PUB, SUB, UNSUB, PING; verbose, pedantic, -ERR texts, limits."""
from libc.stdint cimport int64_t
from pelton.core.broker.reactor cimport Connection, Reactor, ProtocolHandler
from pelton.core.broker.router cimport Message, Router
from pelton.core.protocol.wire cimport Op, Reader


cdef class Sessions(ProtocolHandler):
    cdef readonly Reactor reactor
    cdef object connect                    # (connection, text) -> Router or None
    cdef Router default_router
    cdef public bint auth_required
    cdef public object message_trace       # None, or the message trace, which decides what is traced (session.pyi)
    cdef public int max_subscriptions      # of new connections; 0: no limit
    cdef public int max_sub_tokens         # of a subscription's subject; 0: as many as a trie takes
    cdef public object on_violation        # None, or called with (connection, text) when a permission was missing
    cdef public object on_broken           # None, or called with (connection, text) for input that is no operation, or came before CONNECT
    cdef public object on_guest            # None, or (connection) -> the Router for a client whose first operation is not CONNECT, or None
    cdef public object on_first_pong       # None, or called with a connection when the first PING after its CONNECT was answered
    cdef list held                         # connections whose publishes wait for go_on(); None: publishes do not wait
    cdef int publish(self, Connection c, Op* op) except -1
    cdef int trace(self, Connection c, Router router, Message* m, bytes asked, bytes mapped) except -1
    cdef int no_responders(self, Connection c, Router router, Message* m) except -1
    cdef int subscribe(self, Connection c, Op* op) except -1
    cdef bint room_for(self, Connection c, int64_t cost) noexcept
    cdef int unsubscribe(self, Connection c, Op* op) except -1
    cdef int show(self, Connection c, int kind, Op* op) except -1
    cdef int join(self, Connection c, Router router) except -1
    cdef int check_publish(self, Connection c, Message* m) except -1
    cdef int violation(self, Connection c, str text) except -1
    cdef int failed(self, Connection c, Reader* r, int code) except -1
    cdef bint let_in(self, Connection c, Reader* r) except -1
    cdef int broken(self, Connection c, str text) except -1
