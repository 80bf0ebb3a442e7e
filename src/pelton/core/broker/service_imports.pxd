"""Imports and exports: the border of each account, service imports, and the way of replies back to the requester."""
from libc.stdint cimport uint64_t
from pelton.core.broker.reactor cimport Connection, Reactor, Task
from pelton.core.broker.router cimport Border, Message, Router, Sink
from pelton.core.protocol.subjects cimport Route


cdef str text_of(const char* p, size_t n)
cdef bint is_ack(const char* p, size_t n) noexcept             # an ack subject, which keeps its form between accounts and servers


cdef class Sharing:
    """The state that all accounts of a server share: the chain of service imports being handled now, and callbacks."""
    cdef readonly Reactor reactor
    cdef list chain                        # ServiceImports that led to the request being handled, the first one first
    cdef dict services                     # all Services -> None, for their timeouts
    cdef public object describe            # (connection, detailed, with the server, service account) -> ClientInfo as JSON, or b""
    cdef public object sample              # (service, connection, headers) -> None, or the headers to report with the measurement
    cdef public object measured            # (response, responder or None, status)
    cdef public object on_due              # called with a time (ns) when tick() is needed earlier than its last answer
    cdef uint64_t due_ns                   # tick() is called by then; 0: not at all
    cdef int add_service(self, Service service) except -1
    cdef int drop_service(self, Service service) except -1
    cdef int arm(self, uint64_t due_ns) except -1
    cdef int tell(self, Response response, int status) except -1


cdef class AccountBorder(Border):
    """The imports and exports of one account at its router."""
    cdef readonly Router router
    cdef readonly Sharing sharing
    cdef readonly str name                 # of the account
    cdef public bint system                # the system account: services get the server's name
    cdef bytes prefix                      # of its reply subjects, `_R_.<token>.`; b"" until one is needed
    cdef dict responses                    # reply subject -> Response, of requests to services of this account
    cdef dict expected                     # reply subject -> {Response: None}, of requests from this account
    cdef dict imports                      # stream imports into this account -> None
    cdef int add_import(self, Inflow inflow) except -1
    cdef int drop_import(self, Inflow inflow) except -1
    cdef Response expect(self, Service service, AccountBorder requester, bytes reply)
    # Deliver a message from another account: `m` to clients, `bare` to sinks inside the server; the number of receivers that took it.
    cdef int enter(self, Connection source, Message* m, Message* bare, bint of_stream) except -1
    cdef int show(self, Route route, Connection source, Message* m, Message* bare, bint of_stream) except -1


cdef class Inflow(Sink):
    """A stream import, as the importer's border holds it."""
    cdef int interest(self, bytes subject) except -1       # interest has come or gone, in a subject or pattern of the importer


cdef class Service:
    """An exported service."""
    cdef readonly AccountBorder border
    cdef readonly str subject
    cdef public int response_type          # ResponseType
    cdef public uint64_t threshold_ns
    cdef public size_t most                # the most requests that wait for an answer; above it the one that was silent longest ends
    cdef public object latency             # None: not measured
    cdef public bint allow_trace           # traces of requests continue in the exporter's account
    cdef public size_t most_bytes          # the most bytes of their reply subjects; above it the one that was silent longest ends
    cdef readonly size_t reply_bytes       # bytes held now
    cdef readonly bint closed              # it is not exported any more
    cdef readonly object responses         # OrderedDict reply subject -> Response, the longest silent first


cdef class Response:
    """A request that waits for answers, and where the answers go."""
    cdef readonly Service service
    cdef AccountBorder exporter, importer    # of the service, of the requester
    cdef readonly bytes key, reply         # the reply subject that the service gets, and the requester's own
    cdef readonly uint64_t since_ns
    cdef readonly bint delivered, closed, shared
    cdef public object requester           # when the request is measured: the requester's Connection; else None
    cdef public object headers             # when the request is measured: its headers
    cdef int carry(self, Connection source, Message* m, bint shown) except -1
    cdef int close(self) except -1


cdef class ReplySink(Sink):
    """The sink of all reply subjects of an account."""
    cdef AccountBorder border


cdef class BoundReply(Sink):
    """One reply subject, for a consumer that delivers to it."""
    cdef Response response
    cdef bytes queue


cdef class ServiceImport(Sink):
    """A service in the importer's account."""
    cdef readonly AccountBorder border     # of the importer
    cdef readonly Service service
    cdef readonly str subject              # in the importer's subjects
    cdef bytes target                      # in the exporter's subjects, when that is literal
    cdef object transform                  # maps the importer's subject to the exporter's; None: the same, or `target`
    cdef public bint share
    cdef readonly bint closed
    cdef Sharing sharing
    cdef bytes info_line(self, Connection source)
    cdef Response expect_answer(self, Connection source, Message* m)
    cdef tuple write_info(self, Connection source, Message* m, Message* out, Message* bare)
