/*
 * natsload: a load generator for servers that speak the NATS protocol.   cc -O2 -o natsload natsload.c
 *
 * One thread, one epoll set, no libraries: it must cost less per message than any server it measures. A workload is a row
 * of the table at the end: how to prepare, what a connection may write now, what to do with a message, when it is over.
 * The same loop runs them all. The result is one line of JSON; a run whose messages are lost, refused, doubled or out of
 * order ends with exit code 2 and says so on stderr.
 *
 *     natsload -p PORT WORKLOAD [-n messages | -d seconds] [-s payload bytes] [-c connections] [-r subscribers]
 *              [-w publishes in flight per connection] [-b fetch batch] [-k subjects] [-m (memory stream)] [-i (message ids)]
 *              [-q (responders in a queue group)] [-e (the consumer's state in memory)]
 */
#include "connection.h"

/* ---- the JetStream API, on a connection of its own -------------------------------------------------------------- */

static const char *api(const char *subject, const char *body)
{
    answered = 0;
    putf(desk, "PUB $JS.API.%s %sapi %zu\r\n%s\r\n", subject, desk->inbox, strlen(body), body);
    while (!answered)
        turn();
    return answer;
}

static void demand(const char *subject, const char *body)
{
    if (strstr(api(subject, body), "\"error\""))
        fail("%s refused: %s", subject, answer);
}

static u64 field(const char *text, const char *after, const char *name)
{
    text = strstr(text, after);
    text = text ? strstr(text, name) : NULL;
    text = text ? strchr(text, ':') : NULL;
    return text ? strtoull(text + 1 + strspn(text + 1, " "), NULL, 10) : UINT64_MAX;
}

static void make_stream(void)
{
    char body[256];
    api("STREAM.DELETE.LOAD", "");
    snprintf(body, sizeof body, "{\"name\":\"LOAD\",\"subjects\":[\"LOAD.*\"],\"storage\":\"%s\",\"num_replicas\":1}",
             want.memory ? "memory" : "file");
    demand("STREAM.CREATE.LOAD", body);
}

/* All limits at the server's defaults: 1,000 messages may wait for their ack. */
static void make_consumer(const char *name, const char *policy, const char *deliver)
{
    char subject[96], body[512];
    snprintf(subject, sizeof subject, "CONSUMER.DURABLE.CREATE.LOAD.%s", name);
    snprintf(body, sizeof body,
             "{\"stream_name\":\"LOAD\",\"config\":{\"durable_name\":\"%s\",\"deliver_policy\":\"all\",\"ack_policy\":\"%s\","
             "\"replay_policy\":\"instant\"%s%s%s%s}}",
             name, policy, *deliver ? ",\"deliver_subject\":\"" : "", deliver, *deliver ? "\"" : "",
             want.ephemeral ? ",\"mem_storage\":true" : "");
    demand(subject, body);
}

/* All messages are here: wait until the server has counted every ack. */
static int settle_acks(const char *consumer)
{
    char subject[96];
    const char *info;
    u64 give_up = clock_ns() + (u64)STALL_MS * 1000000;
    snprintf(subject, sizeof subject, "CONSUMER.INFO.LOAD.%s", consumer);
    do
        if (clock_ns() > give_up)
            fail("acks are missing: %s", answer);
    while (info = api(subject, ""), field(info, "\"ack_floor\"", "\"stream_seq\"") != want.count
                                        || field(info, "\"num_ack_pending\"", "\"") != 0);
    return 1;
}

/* ---- workloads --------------------------------------------------------------------------------------------------- */

static int may_publish(const struct peer *p)
{
    return p->sent < p->quota && !(deadline && now >= deadline);
}

static int refill_flood(struct peer *p)                 /* as fast as the server takes it */
{
    while (may_publish(p) && p->out_end - p->out_at < CHUNK)
        publish(p, 0);
    if (may_publish(p))
        return 1;
    if (!p->begun_ns) {                                 /* the end: a PONG says that all was handled */
        p->begun_ns = now;
        put(p, "PING\r\n", 6);
    }
    return 0;
}

static int refill_window(struct peer *p)                /* up to `window` publishes without their answer */
{
    while (may_publish(p) && p->sent - p->answered < want.window && p->out_end - p->out_at < CHUNK) {
        if (want.window == 1)
            p->begun_ns = clock_ns();
        publish(p, 1);
    }
    return may_publish(p) && p->sent - p->answered < want.window;
}

static void receive_pong(struct peer *p)
{
    p->answered++;
    sample(clock_ns() - p->begun_ns);
}

static int refill_ping(struct peer *p)
{
    if (p->sent == p->answered && may_publish(p)) {
        p->sent++;
        p->begun_ns = clock_ns();
        put(p, "PING\r\n", 6);
    }
    return 0;
}

static int refill_fetch(struct peer *p)
{
    if (p->open || !unasked)
        return 0;
    p->open = unasked < (u64)want.batch ? unasked : (u64)want.batch;
    unasked -= p->open;
    p->begun_ns = clock_ns();
    char body[64];
    int n = snprintf(body, sizeof body, "{\"batch\":%llu,\"expires\":30000000000}", (unsigned long long)p->open);
    putf(p, "PUB $JS.API.CONSUMER.MSG.NEXT.LOAD.reader %s%llu %d\r\n%s\r\n", p->inbox, (unsigned long long)p->sent++, n, body);
    return 0;
}

static void receive_nothing(struct peer *p, const struct message *m)
{
    (void)p;
    fault("unexpected message", m->body, m->body_len);
}

static void receive_puback(struct peer *p, const struct message *m)
{
    p->answered++;
    if (m->header_len || m->body_len < 10 || memcmp(m->body, "{\"stream\":", 10))
        fault("publish refused", m->body, m->body_len);
    if (want.window == 1)
        sample(clock_ns() - p->begun_ns);
}

static void receive_data(struct peer *p, const struct message *m)
{
    u64 tag = p->next_tag;
    received++;
    if (m->body_len - m->header_len != (size_t)want.size)
        fault("not the payload that was sent", m->body, m->body_len);
    if (want.size >= 8 && p->listens && want.peers == 1)
        memcpy(&tag, m->body + m->header_len, 8);
    if (tag != p->next_tag)
        fault("out of order or lost", "", 0);
    p->next_tag = tag + 1;
}

static void receive_data_ack(struct peer *p, const struct message *m)
{
    receive_data(p, m);
    acknowledge(p, m);
}

static void receive_fetched(struct peer *p, const struct message *m)
{
    if (!m->reply) {
        fault("fetch ended", m->body, m->body_len);
        unasked += p->open;
        p->open = 0;
        return;
    }
    receive_data_ack(p, m);
    if (--p->open == 0)
        sample(clock_ns() - p->begun_ns);
}

static void receive_request(struct peer *p, const struct message *m)
{
    if (!p->listens) {                                  /* the reply, at the requester */
        p->answered++;
        if (m->header_len)
            fault("no reply", m->body, m->body_len);
        return;
    }
    putf(p, "PUB %.*s %zu\r\n", (int)m->reply_len, m->reply, m->body_len);
    put(p, m->body, m->body_len);
    put(p, "\r\n", 2);
}

static void listen_all(void)
{
    int responders = !strcmp(work->name, "reqrep") ? 1 : want.subscribers;
    for (int i = 0; i < responders; i++)
        putf(dial(1), want.queue ? "SUB LOAD.* q 2\r\n" : "SUB LOAD.* 2\r\n");
}

static void listen_push(void)
{
    struct peer *p = dial(1);
    putf(p, "SUB load.deliver 2\r\n");
}

static void make_reader(void) { make_consumer("reader", "explicit", ""); }

static u64 total(size_t offset)
{
    u64 sum = 0;
    for (int i = 0; i < peer_count; i++)
        if (!peers[i].listens)
            sum += *(u64 *)((char *)(peers + i) + offset);
    return sum;
}
#define TOTAL(name) total(offsetof(struct peer, name))

static int publishing(void)
{
    for (int i = 0; i < peer_count; i++)
        if (!peers[i].listens && may_publish(peers + i))
            return 1;
    return 0;
}

static int flood_over(void)
{
    for (int i = 0; i < peer_count; i++)
        if (!peers[i].listens && peers[i].pongs < 2)    /* the first was for dialling */
            return 0;
    return 1;
}
static int fanout_over(void) { return !publishing() && received == TOTAL(sent) * (u64)want.subscribers; }
static int answers_over(void) { return !publishing() && TOTAL(answered) == TOTAL(sent); }
static int fetch_over(void) { return received >= want.count && settle_acks("reader"); }
static int push_over(void) { return received >= want.count; }
static int pushack_over(void) { return received >= want.count && settle_acks("pusher"); }

static const struct workload workloads[] = {
    {"rtt", NULL, refill_ping, receive_nothing, receive_pong, answers_over, 0},
    {"pub", NULL, refill_flood, receive_nothing, NULL, flood_over, 0},
    {"pubsub", listen_all, refill_flood, receive_data, NULL, fanout_over, 0},
    {"reqrep", listen_all, refill_window, receive_request, NULL, answers_over, 0},
    {"jspub", NULL, refill_window, receive_puback, NULL, answers_over, 1},
    {"fill", NULL, refill_window, receive_puback, NULL, answers_over, 1},
    {"fetch", make_reader, refill_fetch, receive_fetched, NULL, fetch_over, 2},
    {"push", listen_push, NULL, receive_data, NULL, push_over, 2},
    {"pushack", listen_push, NULL, receive_data_ack, NULL, pushack_over, 2},
};

/* Publish `count` messages with one connection, before the clock runs. */
static void fill_stream(void)
{
    static const struct workload filling = {.refill = refill_window, .receive = receive_puback};
    const struct workload *before = work;
    u64 window = want.window;
    want.window = 1000;
    struct peer *p = dial(0);
    p->quota = want.count;
    for (work = &filling; p->answered < want.count;)
        turn();
    p->listens = 1;                                     /* its part is over */
    want.window = window;
    work = before;
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile(double part)
{
    return sample_count ? samples[(size_t)(part * (double)(sample_count - 1))] / 1e3 : 0;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void report(u64 messages, u64 ns, double processor)
{
    double seconds = (double)ns / 1e9;
    qsort(samples, sample_count, sizeof *samples, by_value);
    printf("{\"workload\":\"%s\",\"messages\":%llu,\"seconds\":%.4f,\"rate\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f,"
           "\"processor_seconds\":%.4f,\"faults\":%llu}\n", work->name, (unsigned long long)messages, seconds,
           (double)messages / seconds, quantile(.5), quantile(.99), processor, (unsigned long long)faults);
}

static void read_options(int argc, char **argv)
{
    int option;
    while ((option = getopt(argc, argv, "p:n:d:s:c:r:w:b:k:miqe")) != -1)
        switch (option) {
        case 'p': want.port = atoi(optarg); break;
        case 'n': want.count = strtoull(optarg, NULL, 10); break;
        case 'd': want.seconds = atof(optarg); break;
        case 's': want.size = atoi(optarg); break;
        case 'c': want.peers = atoi(optarg); break;
        case 'r': want.subscribers = atoi(optarg); break;
        case 'w': want.window = strtoull(optarg, NULL, 10); break;
        case 'b': want.batch = atoi(optarg); break;
        case 'k': want.subjects = atoi(optarg); break;
        case 'm': want.memory = 1; break;
        case 'i': want.ids = 1; break;
        case 'q': want.queue = 1; break;
        case 'e': want.ephemeral = 1; break;
        default: fail("see the head of natsload.c for the options");
        }
    for (size_t i = 0; optind < argc && i < sizeof workloads / sizeof *workloads; i++)
        if (!strcmp(argv[optind], workloads[i].name))
            work = workloads + i;
    if (!work || want.size < 0 || want.peers < 1 || !want.window || (work->in_stream == 2 && !want.count))
        fail("a workload is needed (rtt pub pubsub reqrep jspub fill fetch push pushack), with -n or -d; reading needs -n");
    if (!want.count && want.seconds <= 0)
        want.seconds = 1;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    epoll_fd = epoll_create1(0);
    if (!(payload = malloc((size_t)want.size + 8)))
        fail("out of memory");
    for (int i = 0; i < want.size; i++)
        payload[i] = (char)('a' + (i * 7 + i / 26) % 26);
    const struct workload *chosen = work;
    static const struct workload idle = {.receive = receive_nothing};
    work = &idle;
    settle(desk = dial(1));
    if (chosen->in_stream) {
        make_stream();
        if (chosen->in_stream == 2)
            fill_stream();
    }
    work = chosen;
    if (work->prepare)
        work->prepare();
    work = &idle;
    int reads_one = chosen->in_stream == 2 && strcmp(chosen->name, "fetch");
    int first = peer_count;
    for (int i = 0; !reads_one && i < want.peers; i++)
        dial(0);
    for (int i = desk->number + 1; i < peer_count; i++)
        settle(peers + i);
    for (int i = first; i < peer_count; i++)            /* shares of the count; without one, the time is the limit */
        peers[i].quota = want.count ? want.count / (u64)want.peers + ((u64)(i - first) < want.count % (u64)want.peers)
                                    : UINT64_MAX;
    unasked = want.count;
    work = chosen;
    double processor = processor_seconds();
    u64 begin = now = clock_ns();
    if (want.seconds > 0 && !want.count)
        deadline = begin + (u64)(want.seconds * 1e9);
    if (reads_one)
        make_consumer("pusher", !strcmp(work->name, "pushack") ? "explicit" : "none", "load.deliver");
    while (!work->finished())
        turn();
    u64 spent = clock_ns() - begin;
    processor = processor_seconds() - processor;
    u64 messages = received ? received : TOTAL(sent);
    if (chosen->in_stream) {
        u64 stored = field(api("STREAM.INFO.LOAD", ""), "\"state\"", "\"messages\"");
        if (stored != (chosen->in_stream == 2 ? want.count : messages))
            fault("the stream does not hold what was acked", answer, strlen(answer));
    }
    if (chosen->in_stream && strcmp(chosen->name, "fill"))
        api("STREAM.DELETE.LOAD", "");
    report(messages, spent, processor);
    return faults ? 2 : 0;
}
