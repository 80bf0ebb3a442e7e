"""The publish path of a stream: headers, expectations, duplicates, limits, append. The order of the checks is nats-server's.

    publish           take ─► accept ───────────────────────┐
    fast batch        core/stream/fast_batch ─► accept ─────┤
    mirror, source    source_copy ─► accept_sourced ────────┼─► check_*, ask (rules) ─► append ─► the log
    atomic batch      batch_checks, then atomic_batch ──────┘

Each limit and each text of a refusal is in one check_ or refuse_ method here; the ways differ in which of them they call, and when. An
accepted message has its sequence and is in the log; a refused one has used no sequence. For headers of rarer features (rollup, TTL,
counters, schedules, batches) the stream's rules answer, in Python; a stream without rules answers with a fixed refusal.

A PublishPath has what it needs of its stream: the log, the message ids, the PubAcks that wait, the Listeners (who takes the messages)
and the Committer (which makes them durable, and knows when a disk fails). Knows nothing of the stream itself.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset
from pelton.core.base.buffer cimport Out, out_free, out_put, parse_u63
from pelton.core.base.quota cimport Quota, full
from pelton.core.broker.router cimport Message, Router
from pelton.core.log.log cimport Log
from pelton.core.log.subject_table cimport SubjectState
from pelton.core.protocol.publish_headers cimport (
    RARE_BATCH, RARE_COUNTER, RARE_ROLLUP, RARE_SCHEDULE, RARE_SOURCE, RARE_TTL, PublishHeaders, Text, header_value, scan_headers,
    tidy,
)
from pelton.core.stream.committer cimport Committer
from pelton.core.stream.dedupe cimport MessageIds
from pelton.core.stream.draft cimport Draft, draft_of, draft_of_record
from pelton.core.stream.listeners cimport Listeners
from pelton.core.stream.puback_queue cimport ACK_DUPLICATE, ACK_STORED, PubAckQueue

from pelton.core.log import queries
from pelton.core.stream.refusals import not_allowed

cdef enum:
    HEADER_MAX = 65535             # bytes of a stored header block
    RECORD_MAX = 33554432          # bytes of a record of a file stream
    RECORD_EXTRA = 34              # bytes that nats-server adds to subject, headers and payload


class StreamRefused(Exception):
    """A refused publish, with code, err_code and description of its PubAck."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(description)
        self.code = code
        self.err_code = err_code
        self.description = description


cdef class FastBatchHandler:
    """Takes the messages of a stream's fast-ingest batches."""

    cdef int take(self, Message* m) except -1:
        return 0


cdef class AtomicBatchHandler:
    """Takes the messages of a stream's atomic batches."""

    cdef int take(self, Message* m, Draft draft) except -1:
        return REFUSED


cdef tuple _STAGE_HEADERS = (b"Nats-Batch-Id", b"Nats-Incr", b"Nats-TTL", b"Nats-Schedule", b"Nats-Rollup", b"Nats-TTL", b"", b"")


cdef object verdict_without_rules(int stage, Message* m):
    """The fixed refusal of a stream that has the feature of this stage switched off; None: continue."""
    cdef bytes name
    cdef Text t
    if stage >= len(_STAGE_HEADERS):
        return None
    if stage == SCHEDULE:
        t.at = m.body
        t.n = m.hlen
    else:
        name = _STAGE_HEADERS[stage]
        t = header_value(m.body, m.hlen, PyBytes_AS_STRING(name), <uint32_t>PyBytes_GET_SIZE(name))
    return not_allowed(stage, PyBytes_FromStringAndSize(t.at, t.n) if t.at != NULL else b"",
                       PyBytes_FromStringAndSize(m.subject, m.subject_len))


@cython.final
cdef class PublishPath:
    """The publish path of one stream: its settings, its rules, and what it remembers of earlier messages."""

    def __cinit__(self):
        memset(&self.scratch, 0, sizeof(Out))
        memset(&self.last_subject, 0, sizeof(Out))
        memset(&self.last_id, 0, sizeof(Out))

    def __init__(self, Router router, str name, Log log, PubAckQueue acks, Listeners listeners, Committer committer) -> None:
        self.router = router
        self.reactor = router.reactor
        self.name = name
        self.name_bytes = name.encode("utf-8", "surrogateescape")
        self.log = log
        self.acks = acks
        self.listeners = listeners
        self.committer = committer
        self.ids = MessageIds()
        self.refusal_texts = {}

    def __dealloc__(self):
        out_free(&self.scratch)
        out_free(&self.last_subject)
        out_free(&self.last_id)

    def configure(
        self, *, max_msgs: int, max_bytes: int, max_age_ns: int, max_msgs_per_subject: int, max_msg_size: int, discard_new: bool,
        discard_new_per_subject: bool, duplicate_window_ns: int, no_ack: bool, sealed: bool, str dialect = "",
    ) -> None:
        """Set or change the settings; limits that became lower are enforced at once."""
        cdef uint32_t i
        cdef bint obeyed = 0 < self.max_msgs_per_subject <= max_msgs_per_subject
        self.max_msgs = max_msgs
        self.max_bytes = max_bytes
        self.max_age_ns = max_age_ns
        self.max_msgs_per_subject = max_msgs_per_subject
        self.max_msg_size = max_msg_size
        self.discard_new = discard_new
        self.discard_new_per_subject = discard_new_per_subject
        self.duplicate_window_ns = duplicate_window_ns
        self.no_ack = no_ack
        self.sealed = sealed
        if self.acks.speak(dialect):
            self.refusal_texts.clear()
        self.trim()                            # first, as nats-server: the limit of a subject then applies to what is left
        if self.max_msgs_per_subject > 0 and not obeyed:
            for i in range(self.log.subject_ids):
                if self.log.subjects_table.table[i].state.msgs > <uint64_t>self.max_msgs_per_subject:
                    self.trim_subject(i)

    def select(self, bint selective) -> None:
        """Whether a message that no consumer takes gets a sequence and is not stored."""
        self.selective = selective

    def use_rules(self, rules, bint every = False) -> None:
        """Ask these rules from now on; None: ask none. `every`: about each message, not only those with headers for rules."""
        self.rules = rules
        self.every = every

    def use_fast_batches(self, FastBatchHandler handler) -> None:
        """Pass the messages of fast-ingest batches to the handler; None: refuse them."""
        self.fast_batches = handler

    def use_atomic_batches(self, AtomicBatchHandler handler) -> None:
        """Pass the messages of atomic batches to the handler; None: refuse them."""
        self.atomic_batches = handler

    # --- a publish -----------------------------------------------------------------------------------------------------
    cdef int take(self, Message* m) except -1:
        """Accept a publish, or refuse it, and queue its PubAck."""
        cdef uint64_t seq = 0
        cdef int outcome
        if self.fast_batches is not None and m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            return self.fast_batches.take(m)
        outcome = self.accept(m, &seq)
        if m.reply_len == 0 or self.no_ack:
            return 0
        if outcome == STORED:
            self.acks.push(m.reply, m.reply_len, seq, seq, ACK_STORED)
        elif outcome == DUPLICATE:
            self.acks.push(m.reply, m.reply_len, seq, seq, ACK_DUPLICATE)
        elif outcome == ANSWERED:
            self.acks.push_text(m.reply, m.reply_len, seq, self.answer_text)
        elif outcome == HANDLED:
            pass
        elif self.committer.failure:
            self.acks.say(self.router, m.reply, m.reply_len, self.refusal_text)        # not behind acks that may never be sent
        else:
            self.acks.push_text(m.reply, m.reply_len, 0, self.refusal_text)
        return 0

    cdef int clear_refusal(self) except -1:
        self.refusal = None
        return 0

    cdef int check_only(self, Message* m) except -1:
        """Make the checks that do not depend on rules or message ids; nothing is stored."""
        cdef PublishHeaders h
        if self.check_sealed() or self.check_size(m):
            return REFUSED
        scan_headers(m.body, m.hlen, &h)
        if self.check_expected_stream(&h) or self.check_subject_sequence(m, &h) or self.check_last_sequence(&h):
            return REFUSED
        if self.discard_new:
            return self.check_room((h.rare & RARE_ROLLUP) != 0, m)
        return 0

    # --- accepting a message -------------------------------------------------------------------------------------------
    cdef int accept(self, Message* m, uint64_t* seq) except -1:
        """Check and store one message; an Outcome. The order of the checks is nats-server's."""
        cdef PublishHeaders h
        cdef Message own
        cdef Draft draft = None
        cdef int outcome
        if self.check_record_size(m) or self.check_sealed() or (self.check_size(m) and self.check_tidied_size(m)):
            return REFUSED
        h.present = False
        h.rare = 0
        h.message_id.at = NULL
        if self.every:
            own = m[0]
            m = &own
            draft = draft_of(m)
            outcome = self.ask(ARRIVED, m, &h, draft)
            if outcome:
                return outcome
        if m.reply_len > 4 and memcmp(m.reply + m.reply_len - 4, b".$FI", 4) == 0:
            if self.check_payload_size(m):
                return REFUSED
            return self.ask(FAST_BATCH, m, &h, None)       # a stream with fast batches takes it before accept() (core/stream/fast_batch)
        if m.hlen:
            scan_headers(m.body, m.hlen, &h)
            if h.untidy:
                own = m[0]
                m = &own
                self.tidied(m)
                scan_headers(m.body, m.hlen, &h)
                if draft is not None:
                    draft.take_headers(m)
            if draft is None and h.rare and self.rules is not None and not self.joins_batch(&h):
                own = m[0]
                m = &own
                draft = draft_of(m)
            if h.present:
                outcome = self.check_headers(m, &h, seq, draft)
                if outcome != STORED:
                    return outcome
        if self.every:
            outcome = self.ask(COUNT, m, &h, draft)
            if outcome:
                return outcome
            if self.check_size(m):                 # check the size of the message as a rule changed it
                return REFUSED
        outcome = self.store_checked(m, &h, seq, draft)
        if outcome == STORED and draft is not None and draft.extra is not None:
            self.answer_text = self.acks.stored_text(seq[0], draft.extra)
            return ANSWERED
        return outcome

    cdef int accept_in_batch(self, Message* m, uint64_t* seq) except -1:
        self.batching = True
        try:
            return self.accept(m, seq)
        finally:
            self.batching = False

    cdef bint unwanted(self, Message* m) except -1:
        return self.selective and not self.listeners.anyone_takes(m.subject, m.subject_len)

    cdef int store_checked(self, Message* m, PublishHeaders* h, uint64_t* seq, Draft draft) except -1:
        """The last checks of a publish (room, TTL), then the store; STORED, or the Outcome that says why not."""
        cdef int outcome
        if self.unwanted(m):
            outcome = self.skip(h, seq)
            if draft is not None:
                draft.skip()
            return self.after_append(m, h, seq[0], draft) if outcome == STORED else outcome
        if self.check_usage(m):
            return REFUSED
        if h.rare & RARE_TTL:
            outcome = self.ask(TTL_VALUE, m, h, draft)
            if outcome:
                return outcome
        if self.discard_new and self.check_room((h.rare & RARE_ROLLUP) != 0, m):
            return REFUSED
        outcome = self.append(m, h, max(self.reactor.now_ns, self.log.span.last_ts_ns), 0 if draft is None else draft.flags, seq)
        return self.after_append(m, h, seq[0], draft) if outcome == STORED else outcome

    cdef int after_append(self, Message* m, PublishHeaders* h, uint64_t seq, Draft draft) except -1:
        """Rules see the stored message, and limits remove old ones; STORED."""
        if draft is not None:
            draft.stored(seq)
            self.ask(AFTER, m, h, draft)
        self.trim()
        return STORED

    cdef int append(self, Message* m, PublishHeaders* h, uint64_t ts_ns, int flags, uint64_t* seq) except -1:
        """Store a message that passed the checks; STORED or REFUSED. The caller applies the limits of the whole stream."""
        cdef uint32_t subject_id
        try:
            subject_id = self.id_of(m.subject, m.subject_len)
            seq[0] = self.log.append_id(ts_ns, subject_id, m.body, m.hlen, m.body_len, <uint16_t>(flags | h.rare))
        except (OSError, ValueError) as error:
            return self.refuse_for_disk(error)
        self.remember(h, seq[0])
        self.listeners.stored(subject_id, m.subject, m.subject_len, seq[0])
        if self.max_msgs_per_subject > 0:
            self.trim_subject(subject_id)
        return STORED

    cdef int append_or_skip(self, Message* m, PublishHeaders* h, uint64_t ts_ns, int flags, uint64_t* seq, Draft draft) except -1:
        """append(), or skip() for a message that no consumer takes."""
        if not self.unwanted(m):
            return self.append(m, h, ts_ns, flags, seq)
        if draft is not None:
            draft.skip()
        return self.skip(h, seq)

    cdef int skip(self, PublishHeaders* h, uint64_t* seq) except -1:
        """For a message that no consumer takes: use a sequence and remember the message id, but do not store it. STORED or REFUSED."""
        seq[0] = self.log.span.last_seq + 1
        try:
            self.log.skip_to(seq[0] + 1)
        except OSError as error:
            return self.refuse_for_disk(error)
        self.log.span.raise_last(seq[0], self.reactor.now_ns)
        self.remember(h, seq[0])
        return STORED

    cdef int remember(self, PublishHeaders* h, uint64_t seq) except -1:
        """Remember the message's id as the last one, and inside the duplicate window."""
        self.last_id.len = 0
        if h.message_id.at != NULL:
            out_put(&self.last_id, h.message_id.at, h.message_id.n)
            if self.duplicate_window_ns:
                self.ids.add(h.message_id.at, h.message_id.n, seq, self.reactor.now_ns)
        return 0

    cdef int forget_ids(self) except -1:
        self.ids = MessageIds()
        self.last_id.len = 0
        return 0

    cdef int recall_last(self, PublishHeaders* h) except -1:
        self.last_id.len = 0
        out_put(&self.last_id, h.message_id.at, h.message_id.n)
        return 0

    cdef int recall(self, PublishHeaders* h, uint64_t seq, uint64_t ts_ns) except -1:
        cdef uint64_t now = self.reactor.now_ns
        if ts_ns + self.duplicate_window_ns > now and self.ids.find(h.message_id.at, h.message_id.n) == 0:
            self.ids.add(h.message_id.at, h.message_id.n, seq, min(ts_ns, now))
        return 0

    cdef uint64_t forget_old_ids(self) except? 18446744073709551615:
        cdef uint64_t now = self.reactor.now_ns, oldest
        if not self.duplicate_window_ns:
            return 0
        if now >= self.duplicate_window_ns:
            self.ids.forget_until(now - self.duplicate_window_ns)
        oldest = self.ids.oldest_ns()
        return oldest + self.duplicate_window_ns if oldest else 0

    # --- for rules -----------------------------------------------------------------------------------------------------
    def store(self, str subject, bytes payload, bytes headers = b"") -> int:
        """Store a message of the server, a marker or that of a schedule, after the limits of discard new only; returns its sequence.

        Rules are asked at STAGE_STORED only. The stream remembers Nats-Msg-Id. Raises StreamRefused (discard new, disk).
        """
        cdef Message m
        cdef PublishHeaders h
        cdef Draft draft = None
        cdef uint64_t seq = 0
        cdef bytes s = subject.encode("utf-8", "surrogateescape"), body = headers + payload
        m.subject = PyBytes_AS_STRING(s)
        m.subject_len = <uint32_t>PyBytes_GET_SIZE(s)
        m.reply = NULL
        m.reply_len = 0
        m.body = PyBytes_AS_STRING(body)
        m.hlen = <uint32_t>PyBytes_GET_SIZE(headers)
        m.body_len = <uint32_t>PyBytes_GET_SIZE(body)
        scan_headers(m.body, m.hlen, &h)
        if self.discard_new and self.check_room((h.rare & RARE_ROLLUP) != 0, &m):
            raise StreamRefused(*self.refusal)
        if self.rules is not None and (h.rare or self.every):
            draft = draft_of_record(&m, 0, False)
            draft.note("previous", queries.subject_state(self.log, subject)[2])
        if self.append_or_skip(&m, &h, max(self.reactor.now_ns, self.log.span.last_ts_ns), 0, &seq, draft) == REFUSED:
            raise StreamRefused(*self.refusal)
        self.after_append(&m, &h, seq, draft)
        self.committer.enlist()
        return seq

    cdef int accept_sourced(self, Message* m, uint64_t* seq, uint64_t ts_ns, int flags, bint mirrored) except -1:
        """Store a message of an origin, which has checked the expectations in its headers; an Outcome.

        `seq`: with `mirrored`, the sequence that the message must have, above the last one; sequences between are skipped.
        """
        cdef PublishHeaders h
        cdef Draft draft = None
        cdef int outcome
        cdef bint skipped
        if self.check_sealed() or self.check_record_size(m):
            return REFUSED
        scan_headers(m.body, m.hlen, &h)
        if self.rules is not None and (self.every or h.rare):
            draft = draft_of_record(m, flags, True)
            if self.every:
                outcome = self.ask(ARRIVED, m, &h, draft)
                if outcome:
                    return outcome
            if h.rare & RARE_ROLLUP:
                outcome = self.ask(ROLLUP, m, &h, draft)
                if outcome:
                    return outcome
        if h.message_id.at != NULL and not mirrored and self.find_duplicate(h.message_id):
            return DUPLICATE
        if draft is not None and self.every:
            outcome = self.ask(COUNT, m, &h, draft)
            if outcome:
                return outcome
        if self.check_size(m):
            return REFUSED
        skipped = self.unwanted(m)
        if not skipped and self.check_usage(m):
            return REFUSED
        if skipped and draft is not None:
            draft.skip()
        if draft is not None and h.rare & RARE_TTL:
            outcome = self.ask(TTL_VALUE, m, &h, draft)
            if outcome:
                return outcome
        if self.discard_new and self.check_room((h.rare & RARE_ROLLUP) != 0, m):
            return REFUSED
        if mirrored and seq[0] > self.log.span.last_seq + 1:
            try:
                self.log.skip_to(seq[0])
            except OSError as error:
                return self.refuse_for_disk(error)
        if not mirrored:
            ts_ns = max(self.reactor.now_ns, self.log.span.last_ts_ns)
        outcome = self.skip(&h, seq) if skipped else self.append(m, &h, ts_ns, flags if draft is None else draft.flags, seq)
        return self.after_append(m, &h, seq[0], draft) if outcome == STORED else outcome

    def announce(self, str subject, bytes payload, bytes headers, *, after_seq: int) -> None:
        """Publish a message in the order of the stream's acks, once the stream is durable up to a sequence."""
        self.acks.push_message(subject.encode("utf-8", "surrogateescape"), after_seq, headers, payload)
        self.committer.enlist()

    cdef uint32_t id_of(self, const char* subject, uint32_t n) except? 4294967295:
        """The log's id of a subject; the last subject is cached."""
        if n == self.last_subject.len and memcmp(self.last_subject.data, subject, n) == 0:
            return self.last_subject_id
        self.last_subject_id = self.log.subject_id(subject, n)
        self.last_subject.len = 0
        out_put(&self.last_subject, subject, n)
        return self.last_subject_id

    cdef int tidied(self, Message* m) except -1:
        """Let m point at a copy with the header block in its stored form."""
        cdef uint32_t hlen
        self.scratch.off = self.scratch.len = 0
        tidy(m.body, m.hlen, &self.scratch)
        hlen = <uint32_t>self.scratch.len
        out_put(&self.scratch, m.body + m.hlen, m.body_len - m.hlen)
        m.body = self.scratch.data
        m.body_len = m.body_len - m.hlen + hlen
        m.hlen = hlen
        return 0

    cdef int refuse(self, int code, int err_code, str description) except -1:
        """Keep the refusal and its PubAck for the caller; returns REFUSED."""
        self.refusal = (code, err_code, description)
        text = self.refusal_texts.get(self.refusal)
        if text is None:
            text = self.acks.error(code, err_code, description)
            if len(self.refusal_texts) < 64:
                self.refusal_texts[self.refusal] = text
        self.refusal_text = text
        return REFUSED

    cdef bint joins_batch(self, PublishHeaders* h) noexcept:
        """Whether a message is of an atomic batch, and so kept unchanged until the commit."""
        return h.rare & RARE_BATCH and self.atomic_batches is not None and not self.batching

    cdef bint in_doubt(self, uint64_t seq) except -1:
        """Refuse a duplicate while the disk fails and its original may be lost; whether it was refused."""
        if not self.committer.may_lose(seq):
            return False
        self.refuse(503, 10077, self.committer.failure)
        return True

    # --- checks: each refuses with its text (REFUSED) or passes (0) ----------------------------------------------------
    cdef int check_sealed(self) except -1:
        return self.refuse(400, 10109, "invalid operation on sealed stream") if self.sealed else 0

    cdef int check_record_size(self, Message* m) except -1:
        if not self.log.memory and <uint64_t>m.subject_len + m.body_len + RECORD_EXTRA > RECORD_MAX:
            return self.refuse(503, 10077, "message too large")
        return 0

    cdef int check_payload_size(self, Message* m) except -1:
        """Check max_msg_size, which counts headers and payload."""
        if self.max_msg_size >= 0 and m.body_len > <uint64_t>self.max_msg_size:
            return self.refuse(400, 10054, "message size exceeds maximum allowed")
        return 0

    cdef int check_header_size(self, Message* m) except -1:
        return self.refuse(400, 10097, "header size exceeds maximum allowed of 64k") if m.hlen > HEADER_MAX else 0

    cdef int check_size(self, Message* m) except -1:
        return REFUSED if self.check_payload_size(m) or self.check_header_size(m) else 0

    cdef int check_tidied_size(self, Message* m) except -1:
        """Check the stored size of a message that is too large as it came: tidied headers may be smaller."""
        cdef PublishHeaders h
        cdef Message own = m[0]
        scan_headers(m.body, m.hlen, &h)
        if not h.untidy:
            return REFUSED
        self.tidied(&own)
        if self.check_size(&own):
            return REFUSED
        self.refusal = None
        return 0

    cdef int check_usage(self, Message* m) except -1:
        """Check the room of the account and of the server."""
        return self.refuse_for_room() if full(self.log.quota, self.size_of(m)) else 0

    cdef int check_expected_stream(self, PublishHeaders* h) except -1:
        if h.stream.at != NULL and (h.stream.n != <uint32_t>PyBytes_GET_SIZE(self.name_bytes)
                                    or memcmp(h.stream.at, PyBytes_AS_STRING(self.name_bytes), h.stream.n) != 0):
            return self.refuse(400, 10060, "expected stream does not match")
        return 0

    cdef int check_last_sequence(self, PublishHeaders* h) except -1:
        if h.last_sequence.at != NULL and <uint64_t>parse_u63(h.last_sequence.at, h.last_sequence.n) != self.log.span.last_seq:
            return self.refuse_sequence(self.log.span.last_seq)
        return 0

    cdef int check_source_header(self, PublishHeaders* h) except -1:
        return self.refuse(400, 10227, "message stream source header is not allowed") if h.rare & RARE_SOURCE else 0

    cdef int check_headers(self, Message* m, PublishHeaders* h, uint64_t* seq, Draft draft) except -1:
        """Check the publisher's expectations, and whether the message is a duplicate; STORED: the message passes."""
        cdef int outcome
        if h.rare:
            if h.rare & RARE_BATCH and not self.batching:
                if self.check_usage(m) or self.check_payload_size(m):
                    return REFUSED
                if self.atomic_batches is not None:
                    return self.atomic_batches.take(m, draft)
                outcome = self.ask(BATCH, m, h, draft)
                if outcome:
                    return outcome
            if h.rare & RARE_COUNTER:
                outcome = self.ask(COUNTER, m, h, draft)
                if outcome:
                    return outcome
        if h.stream.at != NULL and self.check_expected_stream(h):
            return REFUSED
        if h.rare & RARE_TTL:
            outcome = self.ask(TTL, m, h, draft)
            if outcome:
                return outcome
        if (h.subject_sequence.at != NULL or h.subject.at != NULL) and self.check_subject_sequence(m, h):
            return REFUSED
        if h.last_sequence.at != NULL and self.check_last_sequence(h):
            return REFUSED
        if h.rare & RARE_SCHEDULE:
            outcome = self.ask(SCHEDULE, m, h, draft)
            if outcome:
                return outcome
        if h.rare and self.check_source_header(h):
            return REFUSED
        if h.message_id.at != NULL:
            seq[0] = self.find_duplicate(h.message_id)
            if seq[0]:
                return REFUSED if self.in_doubt(seq[0]) else DUPLICATE
        if h.last_id.at != NULL and (h.last_id.n != self.last_id.len or memcmp(h.last_id.at, self.last_id.data, h.last_id.n) != 0):
            last = PyBytes_FromStringAndSize(self.last_id.data, self.last_id.len) if self.last_id.len else b""
            return self.refuse(400, 10070, f"wrong last msg ID: {last.decode('utf-8', 'replace')}")
        if h.rare & RARE_ROLLUP:
            outcome = self.ask(ROLLUP, m, h, draft)
            if outcome:
                return outcome
        return STORED

    cdef int check_subject_sequence(self, Message* m, PublishHeaders* h) except -1:
        cdef uint64_t last = 0
        if h.subject_sequence.at == NULL:
            return 0 if h.subject.at == NULL else self.refuse(
                400, 10193, "missing sequence for expected last sequence per subject")
        try:
            last = self.last_seq_on(m, h)
        except OSError as error:
            return self.refuse_for_disk(error)
        if <uint64_t>parse_u63(h.subject_sequence.at, h.subject_sequence.n) != last:
            return self.refuse_sequence(last)
        return 0

    cdef uint64_t last_seq_on(self, Message* m, PublishHeaders* h) except? 18446744073709551615:
        """The last sequence on the subject or the pattern of Nats-Expected-Last-Subject-Sequence; 0: none."""
        cdef int64_t id
        cdef SubjectState* state
        if h.subject.at != NULL:
            return queries.last_seq_of(self.log, PyBytes_FromStringAndSize(h.subject.at, h.subject.n).decode("utf-8", "surrogateescape"))
        id = self.log.find_subject(m.subject, m.subject_len)
        state = self.log.subject(<uint32_t>id) if id >= 0 else NULL
        return state.last if state != NULL else 0

    cdef uint64_t find_duplicate(self, Text id) except? 18446744073709551615:
        """The sequence of the message with this id inside the duplicate window, or 0."""
        cdef uint64_t now = self.reactor.now_ns
        if not self.duplicate_window_ns:
            return 0
        if now > self.duplicate_window_ns:
            self.ids.forget_until(now - self.duplicate_window_ns)
        return self.ids.find(id.at, id.n)

    cdef int ask(self, int stage, Message* m, PublishHeaders* h, Draft draft) except -1:
        """Ask the rules about the message at a stage; 0: continue, with the message as the rule changed it; else an Outcome."""
        if self.rules is None or draft is None:
            verdict = verdict_without_rules(stage, m)
        else:
            self.reactor.budget.note_slow()
            try:
                verdict = self.rules.ask(stage, draft)
            except OSError as error:
                verdict = (503, 10077, error.strerror or str(error))
            if draft.changed:
                draft.point(m)
                scan_headers(m.body, m.hlen, h)
        if verdict is None:
            return 0
        if verdict is True:
            return HANDLED
        code, err_code, description = verdict
        return self.refuse(code, err_code, description)

    cdef uint64_t size_of(self, Message* m) noexcept:
        """The size of a message as the stream's limits count it."""
        return <uint64_t>m.subject_len + m.body_len + self.log.size_extra + (self.log.header_extra if m.hlen else 0)

    cdef int refuse_sequence(self, uint64_t actual) except -1:
        return self.refuse(400, 10071, f"wrong last sequence: {actual}")

    cdef int refuse_for_disk(self, object error) except -1:
        """Refuse because of an exception of the log: an OSError, or a ValueError for a message that the log can't store."""
        return self.refuse(503, 10077, getattr(error, "strerror", None) or str(error))

    cdef int refuse_msgs(self) except -1:
        return self.refuse(503, 10077, "maximum messages exceeded")

    cdef int refuse_bytes(self) except -1:
        return self.refuse(503, 10077, "maximum bytes exceeded")

    cdef int refuse_msgs_per_subject(self) except -1:
        return self.refuse(503, 10077, "maximum messages per subject exceeded")

    cdef int refuse_for_room(self) except -1:
        """Refuse because the server or the account has no room left."""
        cdef Quota quota = self.log.quota
        if quota.whole is not None and quota.whole.used > quota.whole.limit:
            return self.refuse(503, 10023, "insufficient resources")
        return self.refuse(400, 10002, "resource limits exceeded for account")

    # --- limits --------------------------------------------------------------------------------------------------------
    cdef int check_room(self, bint rollup, Message* m) except -1:
        """Discard new: refuse a message that would exceed a limit, unless it replaces the oldest message of its subject."""
        cdef int64_t subject_id = self.log.find_subject(m.subject, m.subject_len)
        cdef SubjectState* state = self.log.subject(<uint32_t>subject_id) if subject_id >= 0 else NULL
        cdef bint replaces = self.max_msgs_per_subject > 0 and state != NULL and state.msgs >= <uint64_t>self.max_msgs_per_subject
        cdef uint64_t size = self.size_of(m)
        cdef uint32_t oldest_id = 0, oldest_size = 0
        if replaces and self.discard_new_per_subject and not rollup:
            return self.refuse_msgs_per_subject()
        if self.max_msgs > 0 and self.log.msgs >= <uint64_t>self.max_msgs and not replaces:
            return self.refuse_msgs()
        if self.max_bytes > 0 and self.log.bytes + size > <uint64_t>self.max_bytes:
            if replaces:
                self.log.peek(state.first, &oldest_id, &oldest_size)
            if not replaces or oldest_size < size:
                return self.refuse_bytes()
        return 0

    cdef int evict(self, uint64_t seq) except -1:
        cdef bint oldest = seq == self.log.span.first_seq
        if not self.log.remove(seq):
            return 0
        self.listeners.removed(seq, oldest)
        return 1

    cdef int trim_subject(self, uint32_t subject_id) except -1:
        """Remove a subject's messages above its limit, oldest first."""
        cdef SubjectState* state
        if self.max_msgs_per_subject <= 0:
            return 0
        state = self.log.subject(subject_id)
        try:
            while state != NULL and state.msgs > <uint64_t>self.max_msgs_per_subject:
                self.evict(state.first)
                state = self.log.subject(subject_id)
        except OSError:
            return 0                           # the disk could not read an old message: a later publish removes it
        return 0

    cdef int trim(self) except -1:
        """Remove messages above the limits of the whole stream, oldest first."""
        if self.discard_new or not (
                (self.max_msgs > 0 and self.log.msgs > <uint64_t>self.max_msgs)
                or (self.max_bytes > 0 and self.log.bytes > <uint64_t>self.max_bytes)):
            return 0
        try:
            if self.max_msgs > 0:
                while self.log.msgs > <uint64_t>self.max_msgs:
                    self.evict(self.log.span.first_seq)
            if self.max_bytes > 0:
                while self.log.msgs and self.log.bytes > <uint64_t>self.max_bytes:
                    self.evict(self.log.span.first_seq)
        except OSError:
            return 0                               # as in trim_subject
        return 0
