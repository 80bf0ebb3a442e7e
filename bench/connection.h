/*
 * Connections of the load generator: buffers, the protocol's client side, one turn of the loop.
 *
 * Bytes to send are appended to a connection's buffer and sent once per turn; input is read in large pieces and handed on
 * message by message. Knows of workloads only what they may do in a turn (struct workload).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;

enum {
    MAX_PEERS = 256,
    CHUNK = 64 * 1024,          /* written to a connection before the others get their turn */
    INPUT = 4 * 1024 * 1024,    /* the longest run of bytes without a complete message */
    STALL_MS = 15000,           /* no progress for so long: give up */
};

static struct {
    int port, size, peers, subscribers, batch, subjects, memory, ids, queue, ephemeral;
    u64 count, window;
    double seconds;
} want = {.port = 4222, .size = 128, .peers = 1, .subscribers = 1, .batch = 100, .subjects = 1, .window = 100};

struct peer {
    int fd, number, blocked, readable;
    int listens;                /* a subscriber or responder: it is not asked to publish */
    char *in, *out;
    size_t in_at, in_end, out_at, out_end, out_room;
    u64 quota, sent, answered;  /* publishes or requests allowed, made, answered */
    u64 pongs, open;            /* open: messages of the running fetch still to come */
    u64 begun_ns;               /* when the request being timed was made */
    u64 next_tag;               /* the tag that the next received payload must carry */
    char inbox[32];
    size_t inbox_len;
};

struct message {
    const char *reply, *body;   /* body: header block, then payload */
    size_t reply_len, header_len, body_len;
};

struct workload {
    const char *name;
    void (*prepare)(void);
    int (*refill)(struct peer *);                               /* write what is due; 1: more is due at once */
    void (*receive)(struct peer *, const struct message *);
    void (*pong)(struct peer *);
    int (*finished)(void);
    int in_stream;              /* 1: publishes go into a stream; 2: the stream is filled first, then read */
};

static struct peer peers[MAX_PEERS];
static int peer_count, epoll_fd;
static const struct workload *work;
static u64 now, deadline, received, faults, unasked;
static char *payload;
static uint32_t *samples;
static size_t sample_count, sample_room;

static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("natsload: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static void fault(const char *what, const char *text, size_t length)
{
    if (faults++ < 3)
        fprintf(stderr, "natsload: %s: %.*s\n", what, (int)(length < 200 ? length : 200), text);
}

static u64 clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (u64)t.tv_sec * 1000000000u + (u64)t.tv_nsec;
}

static void sample(u64 ns)
{
    if (sample_count == sample_room) {
        sample_room = sample_room ? sample_room * 2 : 65536;
        if (!(samples = realloc(samples, sample_room * sizeof *samples)))
            fail("out of memory");
    }
    samples[sample_count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

/* ---- output: text is appended to a connection's buffer and sent once per turn ---------------------------------- */

static char *room(struct peer *p, size_t n)
{
    if (p->out_at == p->out_end)
        p->out_at = p->out_end = 0;
    if (p->out_end + n > p->out_room) {
        p->out_room = (p->out_end + n) * 2;
        if (!(p->out = realloc(p->out, p->out_room)))
            fail("out of memory");
    }
    return p->out + p->out_end;
}

static void put(struct peer *p, const void *bytes, size_t n)
{
    memcpy(room(p, n), bytes, n);
    p->out_end += n;
}

static void putf(struct peer *p, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(p, text, (size_t)n);
}

static char *digits(char *at, u64 value)
{
    char text[20], *p = text + sizeof text;
    do
        *--p = (char)('0' + value % 10);
    while (value /= 10);
    memcpy(at, p, (size_t)(text + sizeof text - p));
    return at + (text + sizeof text - p);
}

/* One publish of the next payload; with a reply subject of its own when the answer is wanted. */
static void publish(struct peer *p, int with_reply)
{
    char *start = room(p, 256 + (size_t)want.size), *at = start, id[64];
    size_t header = 0;
    u64 tag = p->sent++;
    if (want.ids)
        header = (size_t)snprintf(id, sizeof id, "NATS/1.0\r\nNats-Msg-Id: %d-%llu\r\n\r\n", p->number, (unsigned long long)tag);
    at = stpcpy(at, header ? "HPUB LOAD." : "PUB LOAD.");
    at = digits(at, want.subjects > 1 ? tag % (u64)want.subjects : 0);
    *at++ = ' ';
    if (with_reply) {
        memcpy(at, p->inbox, p->inbox_len);
        at = digits(at + p->inbox_len, tag);
        *at++ = ' ';
    }
    if (header) {
        at = digits(at, header);
        *at++ = ' ';
    }
    at = stpcpy(digits(at, header + (size_t)want.size), "\r\n");
    memcpy(at, id, header);
    memcpy(at += header, payload, (size_t)want.size);
    if (want.size >= 8)
        memcpy(at, &tag, 8);
    at = stpcpy(at + want.size, "\r\n");
    p->out_end += (size_t)(at - start);
}

static void acknowledge(struct peer *p, const struct message *m)
{
    char *start = room(p, m->reply_len + 32), *at = stpcpy(start, "PUB ");
    memcpy(at, m->reply, m->reply_len);
    at = stpcpy(at + m->reply_len, " 4\r\n+ACK\r\n");
    p->out_end += (size_t)(at - start);
}

static void send_out(struct peer *p)
{
    while (p->out_at < p->out_end && !p->blocked) {
        ssize_t n = send(p->fd, p->out + p->out_at, p->out_end - p->out_at, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN)
            fail("send: %s", strerror(errno));
        if (n < 0)
            p->blocked = 1;     /* until the epoll set says that there is room */
        else
            p->out_at += (size_t)n;
    }
}

/* The connection for API requests, and the answer to the last one. */
static struct peer *desk;
static char answer[65536];
static int answered;

static void note_answer(const struct message *m)
{
    size_t n = m->body_len < sizeof answer - 1 ? m->body_len : sizeof answer - 1;
    memcpy(answer, m->body, n);
    answer[n] = 0;
    answered = 1;
}

/* ---- input ----------------------------------------------------------------------------------------------------- */

static size_t number(const char *at, const char *end)
{
    size_t value = 0;
    for (; at < end; at++)
        value = value * 10 + (size_t)(*at - '0');
    return value;
}

/* MSG subject sid [reply] size, HMSG subject sid [reply] header-size size. False: its body is not complete yet. */
static int take_message(struct peer *p, const char *line, const char *end, const char *body)
{
    const char *word[8], *stop[8];
    int words = 0, headers = line[0] == 'H';
    while (line < end && words < 8) {
        const char *space = memchr(line, ' ', (size_t)(end - line));
        word[words] = line;
        stop[words++] = space = space ? space : end;
        line = space + 1;
    }
    int bare = 4 + headers;
    if (words != bare && words != bare + 1)
        fail("not understood: %.*s", (int)(end - word[0]), word[0]);
    struct message m = {.body = body, .body_len = number(word[words - 1], stop[words - 1])};
    if (headers)
        m.header_len = number(word[words - 2], stop[words - 2]);
    if (words > bare) {
        m.reply = word[3];
        m.reply_len = (size_t)(stop[3] - word[3]);
    }
    if ((size_t)(p->in + p->in_end - body) < m.body_len + 2)
        return 0;
    if (memcmp(body + m.body_len, "\r\n", 2))
        fail("a message does not end where its size says");
    p->in_at = (size_t)(body + m.body_len + 2 - p->in);
    if (p == desk)
        note_answer(&m);
    else
        work->receive(p, &m);
    return 1;
}

static void take_input(struct peer *p)
{
    for (;;) {
        char *line = p->in + p->in_at, *end = memchr(line, '\n', p->in_end - p->in_at);
        if (!end || end == line)
            break;
        if (*line == 'M' || *line == 'H') {
            if (!take_message(p, line, end - 1, end + 1))
                break;
            continue;
        }
        p->in_at = (size_t)(end + 1 - p->in);
        if (!strncmp(line, "PING", 4))
            put(p, "PONG\r\n", 6);
        else if (!strncmp(line, "PONG", 4)) {
            p->pongs++;
            if (work->pong)
                work->pong(p);
        } else if (*line == '-')
            fault("the server said", line, (size_t)(end - line));
    }
    if (p->in_at == p->in_end)
        p->in_at = p->in_end = 0;
}

static void read_in(struct peer *p)
{
    if (p->in_at && INPUT - p->in_end < INPUT / 4) {
        memmove(p->in, p->in + p->in_at, p->in_end -= p->in_at);
        p->in_at = 0;
    }
    size_t space = INPUT - p->in_end;
    ssize_t n = recv(p->fd, p->in + p->in_end, space < 4 * CHUNK ? space : 4 * CHUNK, 0);
    if (!n || (n < 0 && errno != EAGAIN))
        fail("the server closed connection %d: %.*s", p->number, (int)(p->in_end - p->in_at), p->in + p->in_at);
    p->readable = n == 4 * CHUNK;       /* edge-triggered: a short read means that it is empty */
    if (n > 0) {
        p->in_end += (size_t)n;
        take_input(p);
    }
}

/* One turn: write what is due, wait unless somebody has more to do, read what came. */
static void turn(void)
{
    struct epoll_event events[64];
    int busy = 0;
    for (int i = 0; i < peer_count; i++) {
        struct peer *p = peers + i;
        if (work->refill && !p->listens && !p->blocked)
            busy |= work->refill(p);
        send_out(p);
        busy |= p->readable;
    }
    int n = epoll_wait(epoll_fd, events, 64, busy ? 0 : STALL_MS);
    if (!n && !busy)
        fail("nothing happened for %d s", STALL_MS / 1000);
    now = clock_ns();
    for (int i = 0; i < n; i++) {
        struct peer *p = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            p->readable = 1;
        if (events[i].events & EPOLLOUT)
            p->blocked = 0;
    }
    for (int i = 0; i < peer_count; i++)
        if (peers[i].readable)
            read_in(peers + i);
}

static struct peer *dial(int listens)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)want.port)};
    struct peer *p = peers + peer_count;
    int on = 1;
    if (peer_count == MAX_PEERS)
        fail("at most %d connections", MAX_PEERS);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    p->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(p->fd, (struct sockaddr *)&address, sizeof address))
        fail("no server on port %d: %s", want.port, strerror(errno));
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(p->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = p};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, p->fd, &event);
    p->number = peer_count++;
    p->listens = listens;
    if (!(p->in = malloc(INPUT)))
        fail("out of memory");
    p->inbox_len = (size_t)sprintf(p->inbox, "_INBOX.%x.%d.", (unsigned)getpid(), p->number);
    putf(p, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}\r\n"
            "SUB %s* 1\r\n", p->inbox);
    return p;
}

static void settle(struct peer *p)      /* all that was written has been handled by the server */
{
    u64 before = p->pongs;
    put(p, "PING\r\n", 6);
    while (p->pongs == before)
        turn();
}
