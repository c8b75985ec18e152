/* Generates the load of the share group rows: members fetch and acknowledge records, each on its own connection.

   shares PORT SCRIPT PID

   SCRIPT   a file with integers in the machine's byte order: the mode, the number of members, the number of warm-up
            records (in mode 2: transactions), and the number of measured records (all int32); the topic's id
            (16 bytes); then for each member
                partitions   their number, then each partition (int32)
                pair         producer id (int64) and epoch (int32); 0 except in modes 2 and 3
                heads        of ShareFetch v2, ShareAcknowledge v2, TxnShareAcknowledge v0 and EndTxn v5: the length,
                             the position of the session epoch or the pair (int32 each), then the head's bytes: a
                             request without its length, up to its list of topics (EndTxn: the whole request)
   mode     0: each ShareFetch acknowledges the records of the previous one, with one type for each range
            1: each ShareFetch is followed by a ShareAcknowledge, with one type for each record
            2: each record is acknowledged in its own transaction, by TxnShareAcknowledge and EndTxn
            3: like 1, but with a TxnShareAcknowledge and an EndTxn in place of each ShareAcknowledge
   PID      the process whose CPU time is read at the beginning and the end of the measured work

   Prints one line of JSON. If a response is wrong, prints the reason and exits with status 1. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { IMPLICIT, EXPLICIT, TRANSACTIONAL, TOGETHER };
enum { FETCH, ACKNOWLEDGE, STAGE, END, HEADS };
enum { ANSWER_MAX = 16 << 20, REQUEST_MAX = 1 << 20, RANGES_MAX = 4096, EVENTS = 64, ACCEPT = 1 };
enum { CONCURRENT_TRANSACTIONS = 51, RETRY_US = 1000, PATIENCE_S = 30 };

typedef struct { int32_t length, patch_at; unsigned char *bytes; } Head;
typedef struct { int32_t partition; int64_t first, last; } Range;

typedef struct {
    int fd, asked;             /* asked: the head whose response is awaited */
    int32_t partitions, *partition, session_epoch, producer_epoch;
    int64_t producer_id;
    Head heads[HEADS];
    Range ranges[RANGES_MAX];  /* acquired, but not yet acknowledged */
    int count, next;           /* next: the range whose first record is acknowledged next, in mode 2 */
    unsigned char *answer, *request;
    size_t have, size;
} Member;

static int mode;
static unsigned char topic_id[16];
static uint64_t done;  /* records, or transactions */

static void fail(const char *what) {
    fprintf(stderr, "shares: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static void refused(const char *what, int code) {
    fprintf(stderr, "shares: %s was answered with error %d\n", what, code);
    exit(1);
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double cpu_seconds(const char *pid) {
    char path[64], line[1024];
    snprintf(path, sizeof path, "/proc/%s/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof line, file)) fail("no such process");
    fclose(file);
    unsigned long user = 0, system = 0;
    char *fields = strrchr(line, ')');
    if (!fields || sscanf(fields + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("cannot read the CPU time");
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

/* Requests. */

static void put(Member *m, uint64_t value, int bytes) {
    if (m->size + 8 > REQUEST_MAX) { errno = 0; fail("a request is too long"); }
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) m->request[m->size + (size_t)i] = (unsigned char)value;
    m->size += (size_t)bytes;
}

static void put_count(Member *m, uint64_t count) { /* of a compact array */
    for (count++; count > 127; count >>= 7) put(m, (count & 127) | 128, 1);
    put(m, count, 1);
}

static void begin(Member *m, int which) {
    Head *head = &m->heads[which];
    m->size = 4;
    memcpy(m->request + 4, head->bytes, (size_t)head->length);
    m->size = 4 + (size_t)head->patch_at;
    if (which == STAGE || which == END) {
        put(m, (uint64_t)m->producer_id, 8);
        put(m, (uint64_t)(uint16_t)m->producer_epoch, 2);
    } else {
        put(m, (uint64_t)(uint32_t)m->session_epoch++, 4);
    }
    m->size = 4 + (size_t)head->length;
    m->asked = which;
}

static void send_request(Member *m) {
    size_t size = m->size, sent = 0;
    m->size = 0;
    put(m, size - 4, 4);
    m->have = 0;
    while (sent < size) {
        ssize_t now = send(m->fd, m->request + sent, size - sent, MSG_NOSIGNAL);
        if (now < 0) fail("send");
        sent += (size_t)now;
    }
}

static void put_ranges(Member *m, int per_record) {
    int at = 0, groups = 0;
    for (int i = 0; i < m->count; i++) groups += !i || m->ranges[i].partition != m->ranges[i - 1].partition;
    put_count(m, groups ? 1 : 0);
    if (!groups) return;
    memcpy(m->request + m->size, topic_id, 16);
    m->size += 16;
    put_count(m, (uint64_t)groups);
    while (at < m->count) {
        int end = at;
        while (end < m->count && m->ranges[end].partition == m->ranges[at].partition) end++;
        put(m, (uint64_t)m->ranges[at].partition, 4);
        put_count(m, (uint64_t)(end - at));
        for (; at < end; at++) {
            Range *range = &m->ranges[at];
            uint64_t types = per_record ? (uint64_t)(range->last - range->first + 1) : 1;
            put(m, (uint64_t)range->first, 8);
            put(m, (uint64_t)range->last, 8);
            put_count(m, types);
            while (types--) put(m, ACCEPT, 1);
            put(m, 0, 1);
        }
        put(m, 0, 1);
    }
    put(m, 0, 1);
}

static void fetch(Member *m) {
    begin(m, FETCH);
    if (m->session_epoch == 1) { /* the first request lists the partitions */
        put_count(m, 1);
        memcpy(m->request + m->size, topic_id, 16);
        m->size += 16;
        put_count(m, (uint64_t)m->partitions);
        for (int i = 0; i < m->partitions; i++) {
            put(m, (uint64_t)m->partition[i], 4);
            put_count(m, 0);
            put(m, 0, 1);
        }
        put(m, 0, 1);
    } else {
        put_ranges(m, 0);
    }
    put_count(m, 0); /* no forgotten topics */
    put(m, 0, 1);
    send_request(m);
}

static void acknowledge(Member *m) {
    begin(m, ACKNOWLEDGE);
    put_ranges(m, 1);
    put(m, 0, 1);
    send_request(m);
}

static void stage_all(Member *m) { /* like `acknowledge`, but in a transaction */
    begin(m, STAGE);
    put_ranges(m, 1);
    put(m, 0, 1);
    send_request(m);
}

static void stage(Member *m) {
    if (mode == TOGETHER) {
        stage_all(m);
        return;
    }
    Range *range = &m->ranges[m->next];
    begin(m, STAGE);
    put_count(m, 1);
    memcpy(m->request + m->size, topic_id, 16);
    m->size += 16;
    put_count(m, 1);
    put(m, (uint64_t)range->partition, 4);
    put_count(m, 1);
    put(m, (uint64_t)range->first, 8);
    put(m, (uint64_t)range->first, 8);
    put_count(m, 1);
    put(m, ACCEPT, 1);
    for (int i = 0; i < 4; i++) put(m, 0, 1); /* tags of batch, partition, topic and request */
    send_request(m);
}

static void end_transaction(Member *m) {
    begin(m, END);
    send_request(m);
}

/* Responses. */

typedef struct { const unsigned char *at, *end; } Reader;

static uint64_t get(Reader *r, int bytes) {
    uint64_t value = 0;
    if (r->at + bytes > r->end) { errno = 0; fail("an answer is too short"); }
    while (bytes--) value = value << 8 | *r->at++;
    return value;
}

static uint64_t get_varint(Reader *r) {
    uint64_t value = 0, byte = 128;
    for (int shift = 0; byte & 128; shift += 7) value |= ((byte = get(r, 1)) & 127) << shift;
    return value;
}

static void skip(Reader *r, uint64_t bytes) {
    if (bytes > (uint64_t)(r->end - r->at)) { errno = 0; fail("an answer is too short"); }
    r->at += bytes;
}

static void skip_bytes(Reader *r) { /* also skips a string */
    uint64_t size = get_varint(r);
    if (size) skip(r, size - 1);
}

static void skip_tags(Reader *r) {
    for (uint64_t count = get_varint(r); count; count--) {
        get_varint(r);
        skip(r, get_varint(r));
    }
}

static uint64_t get_count(Reader *r) {
    uint64_t count = get_varint(r);
    return count ? count - 1 : 0;
}

static void take_code(Reader *r, const char *what) {
    int code = (int16_t)get(r, 2);
    if (code) refused(what, code);
}

static void take_fetched(Member *m, Reader *r) {
    m->count = m->next = 0;
    take_code(r, "ShareFetch");
    skip_bytes(r);
    get(r, 4); /* the lock's duration */
    for (uint64_t topics = get_count(r); topics; topics--) {
        skip(r, 16);
        for (uint64_t partitions = get_count(r); partitions; partitions--) {
            int32_t partition = (int32_t)get(r, 4);
            take_code(r, "ShareFetch of a partition");
            skip_bytes(r);
            take_code(r, "an acknowledgement in ShareFetch");
            skip_bytes(r);
            skip(r, 8); /* the leader */
            skip_tags(r);
            skip_bytes(r); /* the records */
            for (uint64_t ranges = get_count(r); ranges; ranges--) {
                if (m->count == RANGES_MAX) { errno = 0; fail("too many ranges"); }
                int64_t first = (int64_t)get(r, 8), last = (int64_t)get(r, 8);
                get(r, 2);
                skip_tags(r);
                m->ranges[m->count++] = (Range){partition, first, last};
            }
            skip_tags(r);
        }
        skip_tags(r);
    }
}

static void take_acknowledged(Reader *r) {
    take_code(r, "ShareAcknowledge");
    skip_bytes(r);
    get(r, 4);
    for (uint64_t topics = get_count(r); topics; topics--) {
        skip(r, 16);
        for (uint64_t partitions = get_count(r); partitions; partitions--) {
            get(r, 4);
            take_code(r, "ShareAcknowledge of a partition");
            skip_bytes(r);
            skip(r, 8);
            skip_tags(r);
            skip_tags(r);
        }
        skip_tags(r);
    }
}

static void take_staged(Member *m, Reader *r) {
    int code = (int16_t)get(r, 2);
    if (code == CONCURRENT_TRANSACTIONS) {
        usleep(RETRY_US);
        stage(m);
        return;
    }
    if (code) refused("TxnShareAcknowledge", code);
    if (get_count(r) != 1) { errno = 0; fail("TxnShareAcknowledge was answered without its topic"); }
    skip(r, 16);
    for (uint64_t partitions = get_count(r); partitions; partitions--) {
        get(r, 4);
        take_code(r, "TxnShareAcknowledge of a partition");
        skip_bytes(r);
        skip_tags(r);
    }
    end_transaction(m);
}

static void take_ended(Member *m, Reader *r) {
    take_code(r, "EndTxn");
    m->producer_id = (int64_t)get(r, 8);
    m->producer_epoch = (int16_t)get(r, 2);
    if (mode == TOGETHER) {
        for (int i = 0; i < m->count; i++) done += (uint64_t)(m->ranges[i].last - m->ranges[i].first + 1);
        m->count = 0;
        return;
    }
    done++;
    Range *range = &m->ranges[m->next];
    if (range->first++ == range->last) m->next++;
}

static void go_on(Member *m) { /* called when records have arrived, or a transaction has ended */
    if (mode == TRANSACTIONAL && m->next < m->count) stage(m);
    else if (mode == EXPLICIT && m->count) acknowledge(m);
    else if (mode == TOGETHER && m->count) stage(m);
    else {
        if (mode == TRANSACTIONAL) m->count = 0; /* its ranges have been acknowledged */
        fetch(m);
    }
}

static void answered(Member *m, size_t size) {
    Reader r = {m->answer + 4, m->answer + 4 + size};
    skip(&r, 4); /* the correlation id */
    skip_tags(&r);
    get(&r, 4); /* the throttle time */
    if (m->asked == FETCH || m->asked == ACKNOWLEDGE) {
        /* the acknowledgements of the request have taken effect */
        if (m->asked == ACKNOWLEDGE || mode == IMPLICIT)
            for (int i = 0; i < m->count; i++) done += (uint64_t)(m->ranges[i].last - m->ranges[i].first + 1);
        if (m->asked == ACKNOWLEDGE) {
            take_acknowledged(&r);
            m->count = 0;
            fetch(m);
        } else {
            take_fetched(m, &r);
            go_on(m);
        }
    } else if (m->asked == STAGE) {
        take_staged(m, &r);
    } else {
        take_ended(m, &r);
        go_on(m);
    }
}

static void receive(Member *m) {
    ssize_t got = recv(m->fd, m->answer + m->have, ANSWER_MAX - m->have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the broker closed a connection");
    m->have += (size_t)got;
    if (m->have < 4) return;
    Reader length = {m->answer, m->answer + 4};
    size_t size = get(&length, 4);
    if (size > ANSWER_MAX - 4) { errno = 0; fail("an answer of an impossible size"); }
    if (m->have >= 4 + size) answered(m, size);
}

/* The script. */

static void take(FILE *file, void *into, size_t size) {
    if (fread(into, 1, size, file) != size) { errno = 0; fail("the script ends early"); }
}

static void take_member(FILE *file, Member *m) {
    take(file, &m->partitions, 4);
    m->partition = malloc(4 * (size_t)m->partitions);
    take(file, m->partition, 4 * (size_t)m->partitions);
    take(file, &m->producer_id, 8);
    take(file, &m->producer_epoch, 4);
    for (int i = 0; i < HEADS; i++) {
        Head *head = &m->heads[i];
        take(file, &head->length, 4);
        take(file, &head->patch_at, 4);
        head->bytes = malloc((size_t)head->length + 1);
        take(file, head->bytes, (size_t)head->length);
    }
    m->answer = malloc(ANSWER_MAX);
    m->request = malloc(REQUEST_MAX + 16);
}

int main(int count, char **words) {
    if (count != 4) { errno = 0; fail("wants PORT SCRIPT PID"); }
    FILE *file = fopen(words[2], "rb");
    if (!file) fail("no script");
    int32_t numbers[4];
    take(file, numbers, sizeof numbers);
    take(file, topic_id, 16);
    mode = numbers[0];
    int members = numbers[1];
    uint64_t before = (uint64_t)numbers[2], measured = (uint64_t)numbers[3];
    Member *all = calloc((size_t)members, sizeof *all);
    int poller = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < members; i++) {
        Member *m = &all[i];
        take_member(file, m);
        m->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(m->fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
        int on = 1;
        setsockopt(m->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event wish = {.events = EPOLLIN, .data.ptr = m};
        epoll_ctl(poller, EPOLL_CTL_ADD, m->fd, &wish);
    }
    for (int i = 0; i < members; i++) fetch(&all[i]);
    double begun = now_s(), cpu = 0, seen_s = begun;
    uint64_t done_before = 0, seen = 0;
    for (int measuring = 0;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poller, events, EVENTS, 1000);
        for (int i = 0; i < ready; i++) receive(events[i].data.ptr);
        double now = now_s();
        if (done != seen) { seen = done; seen_s = now; }
        if (now - seen_s > PATIENCE_S) { errno = 0; fail("no more records came"); }
        if (!measuring && done >= before) {
            measuring = 1;
            begun = now;
            done_before = done;
            cpu = cpu_seconds(words[3]);
        } else if (measuring && done >= before + measured) {
            double took = now - begun;
            printf("{\"done\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.3f}\n",
                   (unsigned long long)(done - done_before), took, cpu_seconds(words[3]) - cpu);
            return 0;
        }
    }
}
