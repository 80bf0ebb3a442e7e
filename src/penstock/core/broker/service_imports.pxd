"""What accounts share: the border of each, service imports, and the replies that find their way back."""
from libc.stdint cimport uint64_t
from penstock.core.broker.reactor cimport Connection, Reactor, Task
from penstock.core.broker.router cimport Border, Message, Router, Sink
from penstock.core.protocol.subjects cimport Route


cdef str text_of(const char* p, size_t n)


cdef class Sharing:
    """What all accounts of a server have in common: who is being asked for whom right now, and callbacks."""
    cdef readonly Reactor reactor
    cdef list chain                        # ServiceImports that led to what is being done, first one first
    cdef list services                     # all Services, for their timeouts
    cdef public object describe            # (connection, detailed, with the server, service account) -> ClientInfo as JSON, or b""
    cdef public object sample              # (service, connection, headers) -> None, or headers to tell with the measurement
    cdef public object measured            # (response, responder or None, status)
    cdef public object on_due              # called with a time (ns) when tick() is needed earlier than it said
    cdef uint64_t due_ns                   # tick() is called by then; 0: it is not
    cdef int arm(self, uint64_t due_ns) except -1
    cdef int tell(self, Response response, int status) except -1


cdef class AccountBorder(Border):
    """One account's side."""
    cdef readonly Router router
    cdef readonly Sharing sharing
    cdef readonly str name                 # of the account
    cdef public bint system                # the system account: services are told the server's name
    cdef bytes prefix                      # of its reply subjects, `_R_.<token>.`; b"" until one is needed
    cdef dict responses                    # reply subject -> Response, of requests that went to services here
    cdef dict expected                     # reply subject -> {Response: None}, of requests that came from here
    cdef list imports                      # stream imports into this account
    cdef Response expect(self, Service service, AccountBorder requester, bytes reply)
    # A message from another account, with `m` for clients and `bare` for what is inside the server; how many took it.
    cdef int enter(self, Connection source, Message* m, Message* bare, bint of_stream) except -1
    cdef int show(self, Route route, Connection source, Message* m, Message* bare, bint of_stream) except -1


cdef class Inflow(Sink):
    """A stream import, for the importer's border."""
    cdef int interest(self, bytes subject) except -1       # it has come or gone, in a subject or pattern of the importer


cdef class Service:
    """An exported service."""
    cdef readonly AccountBorder border
    cdef readonly str subject
    cdef public int response_type          # ResponseType
    cdef public uint64_t threshold_ns
    cdef public size_t most                # requests that are waited for; then the oldest one is given up
    cdef public object latency             # None: not measured
    cdef public bint allow_trace           # traces of requests go on in the exporter's account
    cdef public size_t most_bytes          # of their reply subjects in all; likewise
    cdef readonly size_t reply_bytes       # held now
    cdef readonly object responses         # OrderedDict reply subject -> Response, the longest silent first


cdef class Response:
    """A request on its way: where its answers go."""
    cdef readonly Service service
    cdef AccountBorder home, away          # of the service, of the requester
    cdef readonly bytes key, reply         # the reply subject that the service sees, and the requester's own
    cdef readonly uint64_t since_ns
    cdef readonly bint delivered, closed, shared
    cdef public object requester           # measured: the Connection that asked; else None
    cdef public object headers             # measured: of the request
    cdef int carry(self, Connection source, Message* m, bint shown) except -1
    cdef int close(self) except -1


cdef class ReplySink(Sink):
    """All reply subjects of an account."""
    cdef AccountBorder border


cdef class BoundReply(Sink):
    """One of them, for a consumer that answers there."""
    cdef Response response
    cdef bytes queue


cdef class ServiceImport(Sink):
    """A service as an account sees it."""
    cdef readonly AccountBorder border     # of the importer
    cdef readonly Service service
    cdef readonly str subject              # in the importer's subjects
    cdef bytes target                      # in the exporter's, when that is literal
    cdef object transform                  # from one to the other; None: the same, or `target`
    cdef public bint share
    cdef readonly bint closed
    cdef Sharing sharing
    cdef bytes info_line(self, Connection source)
    cdef Response expect_answer(self, Connection source, Message* m)
    cdef tuple write_info(self, Connection source, Message* m, Message* out, Message* bare)
