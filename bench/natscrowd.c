/*
 * natscrowd: very many connections to one server that speaks the NATS protocol.   cc -O2 -o natscrowd natscrowd.c
 *
 * One thread, one epoll set, no libraries. Commands come as lines on standard input; each is answered with a line of JSON.
 *
 *     connect N F       N connections at once; connection i listens on s.i, s.(i+step), ... : F subjects of the ring of N
 *     rounds R B SIZE   every connection publishes B messages on its own subject, waits for the F*B that come to it, R times
 *     churn R           every connection subscribes to a new subject and unsubscribes again, R times
 *     flood K N SIZE    connection K publishes N messages on `slow`, without waiting for anything but the server's window
 *     deaf N            N more connections that listen on `slow`, have small socket buffers and never read
 *     listen K          connection K listens on `slow`, and reads
 *     heard K N         wait until connection K has got N messages of `slow`, and say how many
 *     drop              close every connection at once
 *     quit
 *
 * Each payload says who sent it and the how-manieth it is: what is lost, doubled or out of order is counted as a fault.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef uint32_t u32;

enum { CONNECTING = 512, READ = 256 * 1024, STALL_MS = 20000, SLOW_SID = 999999 };

struct peer {
    int fd, number, deaf, greeted, writable;
    char *in, *out;                 /* what is incomplete; what the kernel did not take */
    size_t in_len, in_room, out_at, out_len, out_room;
    u64 pongs, got, want, sent, slow;
    u32 *next;                      /* per subscription: the number of the next message */
};

static struct peer *peers;
static int count, ring, fan, port, epoll_fd;
static u64 faults, received, closed;
static char *chunk;

static void fail(const char *what)
{
    fprintf(stderr, "natscrowd: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void watch(struct peer *p, int operation)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = p};
    if (p->deaf)
        event.events = EPOLLOUT | EPOLLET;
    if (epoll_ctl(epoll_fd, operation, p->fd, &event))
        fail("epoll_ctl");
}

static void put(struct peer *p, const char *bytes, size_t n)
{
    if (p->out_len == p->out_at && p->writable && p->fd >= 0) {
        ssize_t sent = send(p->fd, bytes, n, MSG_NOSIGNAL);
        if (sent == (ssize_t)n)
            return;
        if (sent < 0 && errno != EAGAIN) {
            faults += errno != EPIPE && errno != ECONNRESET;
            return;
        }
        p->writable = 0;
        sent = sent < 0 ? 0 : sent;
        bytes += sent;
        n -= (size_t)sent;
    }
    if (p->out_len + n > p->out_room) {
        memmove(p->out, p->out + p->out_at, p->out_len -= p->out_at);
        p->out_at = 0;
        if (p->out_len + n > p->out_room && !(p->out = realloc(p->out, p->out_room = (p->out_len + n) * 2)))
            fail("memory");
    }
    memcpy(p->out + p->out_len, bytes, n);
    p->out_len += n;
}

static void flush(struct peer *p)
{
    p->writable = 1;
    while (p->out_at < p->out_len) {
        ssize_t n = send(p->fd, p->out + p->out_at, p->out_len - p->out_at, MSG_NOSIGNAL);
        if (n < 0) {
            p->writable = 0;
            return;
        }
        p->out_at += (size_t)n;
    }
    free(p->out);
    p->out = NULL;
    p->out_at = p->out_len = p->out_room = 0;
}

static void message(struct peer *p, u32 sid, const char *body)
{
    u32 number;
    if (sid == SLOW_SID) {
        memcpy(&number, body, 4);
        faults += number != (u32)p->slow++;
        return;
    }
    received++;
    p->got++;
    memcpy(&number, body, 4);
    faults += sid >= (u32)fan || number != p->next[sid];
    if (sid < (u32)fan)
        p->next[sid] = number + 1;
}

/* One line, and its body when it is a message; 0: not complete. */
static size_t take(struct peer *p, char *at, size_t n)
{
    char *end = memchr(at, '\n', n);
    if (!end)
        return 0;
    size_t line = (size_t)(end + 1 - at);
    if (!strncmp(at, "MSG ", 4)) {
        char *space = memchr(at + 4, ' ', line - 4), *last = memrchr(at, ' ', line);
        size_t size = strtoul(last + 1, NULL, 10);
        if (n < line + size + 2)
            return 0;
        message(p, (u32)strtoul(space + 1, NULL, 10), end + 1);
        return line + size + 2;
    }
    if (!strncmp(at, "INFO", 4))
        p->greeted = 1;
    else if (!strncmp(at, "PONG", 4))
        p->pongs++;
    else if (!strncmp(at, "PING", 4))
        put(p, "PONG\r\n", 6);
    else
        faults++;
    return line;
}

static void hang_up(struct peer *p)
{
    if (p->fd < 0)
        return;
    close(p->fd);
    p->fd = -1;
    closed++;
}

static void read_in(struct peer *p)
{
    for (;;) {
        memcpy(chunk, p->in, p->in_len);
        ssize_t n = recv(p->fd, chunk + p->in_len, READ, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
            hang_up(p);
            return;
        }
        if (n < 0)
            return;
        size_t end = p->in_len + (size_t)n, at = 0, used;
        while (at < end && (used = take(p, chunk + at, end - at)))
            at += used;
        p->in_len = end - at;
        if (p->in_len > p->in_room && !(p->in = realloc(p->in, p->in_room = p->in_len)))
            fail("memory");
        memcpy(p->in, chunk + at, p->in_len);
        if (n < READ)
            return;
    }
}

/* Handle what is there; the peers that something came to are handed to `after`. */
static void turn(void (*after)(struct peer *))
{
    struct epoll_event events[512];
    int n = epoll_wait(epoll_fd, events, 512, STALL_MS);
    if (n == 0)
        fail("nothing happened for long");
    for (int i = 0; i < n; i++) {
        struct peer *p = events[i].data.ptr;
        if (p->fd >= 0 && events[i].events & EPOLLOUT)
            flush(p);
        if (p->fd >= 0 && !p->deaf && events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            read_in(p);
        if (after && !p->deaf)
            after(p);
    }
}

static void dial(int deaf)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}, from = {.sin_family = AF_INET};
    struct peer *p = peers + count;
    int on = 1, small = 4096;
    memset(p, 0, sizeof *p);
    p->deaf = deaf;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + (u32)(count / 10000));    /* more ports than one address has */
    p->number = count++;
    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (p->fd < 0)
        fail("socket");
    setsockopt(p->fd, SOL_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(p->fd, (struct sockaddr *)&from, sizeof from))
        fail("bind");
    if (deaf)
        setsockopt(p->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    if (connect(p->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS)
        fail("connect");
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    watch(p, EPOLL_CTL_ADD);
}

static int connecting, opened;

static void welcome(struct peer *p)
{
    char text[256];
    if (p->greeted == 1) {
        p->greeted = 2;
        int n = sprintf(text, "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"name\":\"crowd\"}\r\n");
        put(p, text, (size_t)n);
        for (int i = 0; i < fan; i++) {
            n = sprintf(text, "SUB s.%d %d\r\n", (p->number + i * 7919) % ring, i);
            put(p, text, (size_t)n);
        }
        put(p, "PING\r\n", 6);
        if (!(p->next = calloc((size_t)fan, sizeof *p->next)))
            fail("memory");
    }
    if (p->greeted == 2 && p->pongs == 1) {
        p->greeted = 3;
        connecting--;
        opened++;
    }
}

static void connect_all(int n, int subjects)
{
    ring = n;
    fan = subjects;
    opened = 0;
    double begun = seconds();
    for (int dialled = 0; opened < n;) {
        for (; dialled < n && connecting < CONNECTING; dialled++, connecting++)
            dial(0);
        turn(welcome);
        if (closed)
            fail("the server hung up");
    }
    printf("{\"connections\":%d,\"seconds\":%.4f}\n", n, seconds() - begun);
}

static u64 rounds, burst, size, finished;
static char *text;

static void go_on(struct peer *p)
{
    while (p->got >= p->want && p->sent < rounds) {
        size_t at = 0;
        for (u64 i = 0; i < burst; i++) {
            u32 number = (u32)(p->sent * burst + i);
            at += (size_t)sprintf(text + at, "PUB s.%d %llu\r\n", p->number, (unsigned long long)size);
            memset(text + at, 'x', size);
            memcpy(text + at, &number, 4);
            at += size;
            memcpy(text + at, "\r\n", 2);
            at += 2;
        }
        p->sent++;
        p->want += burst * (u64)fan;
        put(p, text, at);
    }
    if (p->sent == rounds && p->got == p->want) {
        p->sent++;
        finished++;
    }
}

static void run_rounds(u64 r, u64 b, u64 bytes)
{
    rounds = r, burst = b, size = bytes, finished = 0, received = 0;
    if (!(text = realloc(text, b * (bytes + 64))))
        fail("memory");
    for (int i = 0; i < ring; i++) {
        peers[i].sent = peers[i].got = peers[i].want = 0;
        memset(peers[i].next, 0, (size_t)fan * sizeof(u32));
    }
    double begun = seconds();
    for (int i = 0; i < ring; i++)
        go_on(peers + i);
    while (finished < (u64)ring && !closed)
        turn(go_on);
    double spent = seconds() - begun;
    u64 missing = r * b * (u64)ring * (u64)fan - received;
    printf("{\"published\":%llu,\"received\":%llu,\"missing\":%llu,\"faults\":%llu,\"seconds\":%.4f,\"rate\":%.0f}\n",
           (unsigned long long)(r * b * (u64)ring), (unsigned long long)received, (unsigned long long)missing,
           (unsigned long long)faults, spent, (double)received / spent);
}

static u64 ponged;

static void all_pongs(void)
{
    for (int i = 0; i < ring; i++)
        put(peers + i, "PING\r\n", 6);
    for (;;) {
        ponged = 0;
        for (int i = 0; i < ring; i++)
            ponged += peers[i].pongs >= peers[i].want;
        if (ponged == (u64)ring)
            return;
        turn(NULL);
    }
}

static void churn(u64 r)
{
    double begun = seconds();
    for (u64 i = 0; i < r; i++)
        for (int k = 0; k < ring; k++) {
            char line[128];
            int n = sprintf(line, "SUB churn.%llu.%d c%llu\r\nUNSUB c%llu\r\n", (unsigned long long)i, k,
                            (unsigned long long)i, (unsigned long long)i);
            put(peers + k, line, (size_t)n);
        }
    for (int k = 0; k < ring; k++)
        peers[k].want = peers[k].pongs + 1;
    all_pongs();
    printf("{\"churned\":%llu,\"seconds\":%.4f}\n", (unsigned long long)(r * (u64)ring), seconds() - begun);
}

static void settle(struct peer *p)
{
    u64 before = p->pongs;
    put(p, "PING\r\n", 6);
    while (p->pongs == before && p->fd >= 0)
        turn(NULL);
}

static void deafen(int n)
{
    static const char hello[] = "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB slow 999999\r\n";
    int first = count;
    for (int i = 0; i < n; i++)
        dial(1);
    for (int i = first; i < count; i++)
        put(peers + i, hello, strlen(hello));
    for (int i = first; i < count; i++)
        while (peers[i].out_len)
            turn(NULL);
    settle(peers);
    printf("{\"deaf\":%d}\n", n);
}

static void flood(int k, u64 n, u64 bytes)
{
    static u32 next;                /* goes on from flood to flood */
    char *line = malloc(bytes + 64);
    double begun = seconds();
    u64 lost = closed;
    for (u64 i = 0; i < n; i++) {
        u32 number = next++;
        size_t at = (size_t)sprintf(line, "PUB slow %llu\r\n", (unsigned long long)bytes);
        memset(line + at, 'x', bytes);
        memcpy(line + at, &number, 4);
        memcpy(line + at + bytes, "\r\n", 2);
        put(peers + k, line, at + bytes + 2);
        if (i % 64 == 63)
            settle(peers + k);
    }
    settle(peers + k);
    free(line);
    printf("{\"flooded\":%llu,\"seconds\":%.4f,\"closed\":%llu}\n", (unsigned long long)n, seconds() - begun,
           (unsigned long long)(closed - lost));
}

static void heard(int k, u64 n)
{
    while (peers[k].slow < n && peers[k].fd >= 0)
        turn(NULL);
    printf("{\"heard\":%llu,\"faults\":%llu}\n", (unsigned long long)peers[k].slow, (unsigned long long)faults);
}

static void drop(void)
{
    struct linger hard = {1, 0};
    int n = 0;
    for (int i = 0; i < count; i++) {
        struct peer *p = peers + i;
        if (p->fd >= 0) {
            setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);      /* no TIME_WAIT: the ports are needed again */
            close(p->fd);
            n++;
        }
        free(p->in);
        free(p->out);
        free(p->next);
    }
    count = 0;
    closed = faults = 0;
    printf("{\"dropped\":%d}\n", n);
}

int main(int argc, char **argv)
{
    char line[256];
    u64 a, b, c;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    port = argc > 1 ? atoi(argv[1]) : 4222;
    epoll_fd = epoll_create1(0);
    if (!(peers = calloc(65536, sizeof *peers)) || !(chunk = malloc(READ + 4 * 1024 * 1024)))
        fail("memory");
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "connect %llu %llu", (unsigned long long *)&a, (unsigned long long *)&b) == 2)
            connect_all((int)a, (int)b);
        else if (sscanf(line, "rounds %llu %llu %llu", (unsigned long long *)&a, (unsigned long long *)&b,
                        (unsigned long long *)&c) == 3)
            run_rounds(a, b, c);
        else if (sscanf(line, "churn %llu", (unsigned long long *)&a) == 1)
            churn(a);
        else if (sscanf(line, "deaf %llu", (unsigned long long *)&a) == 1)
            deafen((int)a);
        else if (sscanf(line, "listen %llu", (unsigned long long *)&a) == 1) {
            put(peers + a, "SUB slow 999999\r\n", 17);
            settle(peers + a);
            printf("{\"listens\":%llu}\n", (unsigned long long)a);
        } else if (sscanf(line, "flood %llu %llu %llu", (unsigned long long *)&a, (unsigned long long *)&b,
                          (unsigned long long *)&c) == 3)
            flood((int)a, b, c);
        else if (sscanf(line, "heard %llu %llu", (unsigned long long *)&a, (unsigned long long *)&b) == 2)
            heard((int)a, b);
        else if (!strncmp(line, "drop", 4))
            drop();
        else if (!strncmp(line, "quit", 4))
            break;
        else
            printf("{\"error\":\"unknown command\"}\n");
        fflush(stdout);
    }
    return 0;
}
