"""Requests of all accounts, carried out step by step and in turns, so that long and many requests do not hold up other connections.

    request ──► begins at once       when none waits or has just waited, within the budget of a run
            ──► waits                for the end of the turn, behind the output: steps within the budget of a run

The work of a request is a generator that yields between its steps. Accounts take turns at each step, and so do the connections of an
account. A client is not read from while its request waits: its operations stay in order, and each client has at most one request here.
Requests from other servers and from inside this server hold nobody up, and are refused above a limit. Does not know what the requests are.
"""
from collections import deque
from collections.abc import Generator

from libc.stdint cimport int64_t
from pelton.core.broker.reactor cimport Connection, Reactor, Task

cdef enum:
    WAITING_MOST = 10000                   # nats-server's default: request_queue_limit
    WAITING_BYTES = 67108864

Work = Generator[None, None, None]


cdef class Waiting:
    """One request."""
    cdef object account, work
    cdef Connection held                   # the client that is not read from
    cdef object source
    cdef int64_t size


cdef class Share:
    """The requests of one account."""
    cdef object lines                      # deque of deques: the requests of each source, the next source first
    cdef dict of_source                    # id of a source whose requests hold nobody up -> its deque
    cdef int count
    cdef int64_t free                      # how many requests hold nobody up,
    cdef int64_t bytes                     # and their bytes


cdef class RequestQueue(Task):
    """The requests that wait."""

    def __init__(self, Reactor reactor, failed, most: int = WAITING_MOST, most_bytes: int = WAITING_BYTES) -> None:
        self.reactor = reactor
        self.failed = failed
        self.most = most
        self.most_bytes = most_bytes
        self.accounts = deque()
        self.shares = {}

    def submit(self, account, Connection source, work, int64_t size=0) -> bool:
        """Carry out a request, now or in a later turn. False: too many wait."""
        cdef Share share
        cdef Waiting waiting
        cdef bint first = not self.accounts and not self.running and self.may_begin()
        if first:
            while self.step(work):
                if not self.reactor.budget.goes_on():
                    break
            else:
                self.reactor.budget.end()
                return True
            self.reactor.budget.end()
        share = self.shares.get(account)
        if share is None:
            share = Share()
            share.lines = deque()
            share.of_source = {}
        waiting = Waiting()
        waiting.account, waiting.work, waiting.source, waiting.size = account, work, source, size
        if source is not None and source.handler is None:
            waiting.held = source
            source.hold()
            share.lines.append(deque((waiting,)))
        elif not first and (share.free >= self.most or share.bytes + size > self.most_bytes):
            return False
        else:
            line = share.of_source.get(source)
            if line is None:
                line = share.of_source[source] = deque()
                share.lines.append(line)
            line.append(waiting)
            share.free += 1
            share.bytes += size
        share.count += 1
        if share.count == 1:
            self.shares[account] = share
            self.accounts.append(share)
        self.reactor.enlist_last(self)
        return True

    cdef bint may_begin(self) noexcept:
        """Whether a request may begin at once: within the budget of a run, before the turn has its output. Behind requests that waited it
        may not, since a client that was just resumed would then delay the output of every turn.
        """
        if self.reactor.turns <= self.ran_in + 1 and self.ran_in:
            return False
        if self.started_in == self.reactor.turns + 1:
            return self.reactor.budget.goes_on()
        self.started_in = self.reactor.turns + 1
        self.reactor.budget.begin()
        return True

    def drop(self, account) -> None:
        """Close the work of all requests of an account that wait."""
        cdef Share share = self.shares.pop(account, None)
        if share is None:
            return
        self.accounts.remove(share)
        for line in share.lines:
            for waiting in line:
                (<Waiting>waiting).work.close()
                self.leave(waiting)

    def waiting(self, account) -> int:
        """How many requests of an account wait or are being carried out."""
        cdef Share share = self.shares.get(account)
        return 0 if share is None else share.count

    cdef int run(self) except -1:
        self.reactor.budget.begin()
        self.ran_in = self.reactor.turns
        self.running = True
        while self.accounts:
            self.advance()
            if not self.reactor.budget.goes_on():
                break
            if self.reactor.resumed:
                self.reactor.resume()          # the client's next request may be carried out in this turn, too
        self.running = False
        self.reactor.budget.end()
        return 1 if self.accounts else 0

    cdef int advance(self) except -1:
        cdef Share share = self.accounts[0]
        cdef Waiting waiting
        line = share.lines[0]
        waiting = line[0]
        if self.step(waiting.work):
            if self.shares.get(waiting.account) is share:          # the work may have dropped the account
                self.accounts.rotate(-1)
                share.lines.rotate(-1)
            return 0
        if self.shares.get(waiting.account) is not share:
            return 0
        line.popleft()
        share.lines.rotate(-1)
        if not line:
            share.lines.pop()
            if waiting.held is None:
                del share.of_source[waiting.source]
        if waiting.held is None:
            share.free -= 1
            share.bytes -= waiting.size
        share.count -= 1
        self.accounts.rotate(-1)
        if share.count == 0:
            self.accounts.pop()
            del self.shares[waiting.account]
        return self.leave(waiting)

    cdef int leave(self, object waiting) except -1:
        if (<Waiting>waiting).held is not None:
            (<Waiting>waiting).held.release()
        return 0

    cdef bint step(self, object work) except -1:
        """Do one step; whether there are more."""
        try:
            next(work)
        except StopIteration:
            return False
        except Exception as error:
            self.failed(error)
            return False
        return True
