"""Stream imports: messages published in one account reach the subscribers of another."""
from pelton.core.broker.router cimport Sink
from pelton.core.broker.service_imports cimport AccountBorder, Inflow
from pelton.core.protocol.subjects cimport Route


cdef class StreamImport(Inflow):
    """An imported stream: a sink on the exporter's router."""
    cdef readonly AccountBorder exporter, importer
    cdef readonly str subject, local        # patterns of the exporter, of the importer
    cdef public bint allow_trace            # traces continue in the importer's account
    cdef bytes target                       # the importer's subject when that is literal
    cdef object transform
    cdef readonly bint closed
    cdef bytes local_subject(self, const char* subject, size_t n)


cdef class BoundImport(Sink):
    """A stream import bound to one literal subject."""
    cdef StreamImport source
    cdef bytes subject, queue               # as the importer sees it
    cdef Route route(self)
