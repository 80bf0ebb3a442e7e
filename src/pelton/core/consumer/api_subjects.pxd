"""The JetStream subjects of one account, handled without Python per message: `$JS.ACK.`, `$JS.FC.` and `$JS.API.`."""
from pelton.core.base.maps cimport BytesMap
from pelton.core.broker.reactor cimport Connection
from pelton.core.broker.router cimport Message, Router, Sink
from pelton.core.consumer.consumer cimport Consumer


cdef class ApiSubjects(Sink):
    cdef readonly Router router
    cdef object api
    cdef dict consumers            # stream.consumer -> Consumer: keeps the objects in `places` alive
    cdef BytesMap places           # the same names -> address of the Consumer
    cdef Consumer last             # the consumer of the last ack
    cdef public object max_deliver_advisory, nak_advisory, term_advisory, pin_advisory, ack_metric, explain_pull
    cdef public bytes owner        # domain.account. of the longer subjects; b"": any
    cdef const char* owned(self, const char* key, const char* end)
    cdef int flow(self, Message* m) except -1
    cdef int ack(self, Message* m) except -1
    cdef int ack_at(self, Consumer consumer, const char* p, const char* end, int count, Message* m) except -1
    cdef int ask(self, Connection source, Message* m) except -1            # call api()
    cdef int take_old(self, Connection source, Message* m) except -1
    cdef int old_ack(self, Message* m) except -1
    cdef int next(self, Message* m, const char* key, size_t n) except -1
    cdef Consumer find(self, const char* key, size_t n)
