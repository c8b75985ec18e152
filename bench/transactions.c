/* Generates the load of the raw transaction rows: each producer runs transactions on its own connection, one at a time.

   transactions PORT SCRIPTS SECONDS WARM_UP_SECONDS PID

   SCRIPTS   a file with int32 integers in the machine's byte order: the number of producers; then for each producer the
             number of its steps, its producer id (int64), its epoch and its first sequence; then for each step
                 length      length of the request, whose bytes follow these five numbers
                 pair_at     position of the producer id (int64) and epoch (int16) in the request, or -1
                 batch_at    position of the request's record batch, which has one record, or -1
                 error_at    position of the error code (int16), which must be 0 (51: retry), after a response's length
                 told_at     position of the next transaction's producer id and epoch in the response, or -1
   PID       the process whose CPU time is read at the beginning and the end of the measured time

   The last step of a script is the commit. Prints one line of JSON. If a response is wrong, exits with status 1. */

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

enum { ANSWER_MAX = 65536, SLOWEST_US = 4 * 1000 * 1000, EVENTS = 256, CONCURRENT_TRANSACTIONS = 51, RETRY_US = 1000 };
enum { CRC_AT = 17, CRC_FROM = 21, ID_AT = 43, EPOCH_AT = 51, SEQUENCE_AT = 53, LENGTH_AT = 8, OVERHEAD = 12 };

typedef struct { int32_t length, pair_at, batch_at, error_at, told_at; unsigned char *request; } Step;

typedef struct {
    int fd, steps, step;
    Step *script;
    int64_t id;
    int16_t epoch;
    int32_t sequence;
    uint64_t sent_ns;
    unsigned char answer[ANSWER_MAX];
    size_t have;
} Producer;

static int measuring;
static uint64_t commits, retries;
static uint32_t slower_by_us[SLOWEST_US + 1], crc_table[256];

static void fail(const char *what) {
    fprintf(stderr, "transactions: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
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

static void make_crc_table(void) { /* CRC-32C, reflected */
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t value = byte;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0x82f63b78u : value >> 1;
        crc_table[byte] = value;
    }
}

static uint32_t crc32c(const unsigned char *data, size_t size) {
    uint32_t value = ~0u;
    while (size--) value = crc_table[(value ^ *data++) & 255] ^ value >> 8;
    return ~value;
}

static void put(unsigned char *into, uint64_t value, int bytes) {
    for (int i = bytes - 1; i >= 0; i--, value >>= 8) into[i] = (unsigned char)value;
}

static uint64_t get(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    while (bytes--) value = value << 8 | *from++;
    return value;
}

static void send_step(Producer *producer) {
    Step *step = &producer->script[producer->step];
    if (step->pair_at >= 0) {
        put(step->request + step->pair_at, (uint64_t)producer->id, 8);
        put(step->request + step->pair_at + 8, (uint16_t)producer->epoch, 2);
    }
    if (step->batch_at >= 0) {
        unsigned char *batch = step->request + step->batch_at;
        put(batch + ID_AT, (uint64_t)producer->id, 8);
        put(batch + EPOCH_AT, (uint16_t)producer->epoch, 2);
        put(batch + SEQUENCE_AT, (uint32_t)producer->sequence, 4);
        size_t size = get(batch + LENGTH_AT, 4) + OVERHEAD;
        put(batch + CRC_AT, crc32c(batch + CRC_FROM, size - CRC_FROM), 4);
    }
    producer->sent_ns = now_ns();
    producer->have = 0;
    /* fits into the socket's buffer: it is small, and nothing else is in flight on this connection */
    if (send(producer->fd, step->request, (size_t)step->length, MSG_NOSIGNAL) != step->length) fail("cannot send");
}

static void answered(Producer *producer) {
    Step *step = &producer->script[producer->step];
    const unsigned char *body = producer->answer + 4;
    size_t size = producer->have - 4;
    if ((size_t)step->error_at + 2 > size) { errno = 0; fail("an answer is too short"); }
    int code = (int16_t)get(body + step->error_at, 2);
    if (code == CONCURRENT_TRANSACTIONS) {
        retries += (uint64_t)measuring;
        uint64_t sent_ns = producer->sent_ns;
        usleep(RETRY_US);
        send_step(producer);
        producer->sent_ns = sent_ns;
        return;
    }
    if (code != 0) {
        fprintf(stderr, "transactions: step %d was answered with code %d\n", producer->step, code);
        exit(1);
    }
    if (step->batch_at >= 0) producer->sequence++;
    if (step->told_at >= 0) {
        int64_t id = (int64_t)get(body + step->told_at, 8);
        int16_t epoch = (int16_t)get(body + step->told_at + 8, 2);
        if (id != producer->id || epoch != producer->epoch) producer->sequence = 0;
        producer->id = id;
        producer->epoch = epoch;
    }
    if (++producer->step == producer->steps) {
        producer->step = 0;
        if (measuring) {
            uint64_t took_us = (now_ns() - producer->sent_ns) / 1000;
            commits++;
            slower_by_us[took_us < SLOWEST_US ? took_us : SLOWEST_US]++;
        }
    }
    send_step(producer);
}

static void receive(Producer *producer) {
    ssize_t got = recv(producer->fd, producer->answer + producer->have, ANSWER_MAX - producer->have, MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the connection ended");
    producer->have += (size_t)got;
    if (producer->have >= 4 && producer->have >= 4 + get(producer->answer, 4)) answered(producer);
}

static unsigned percentile(double share) {
    uint64_t wanted = (uint64_t)((double)commits * share), seen = 0;
    for (unsigned us = 0; us <= SLOWEST_US; us++)
        if ((seen += slower_by_us[us]) > wanted) return us;
    return SLOWEST_US;
}

static void take(FILE *file, void *into, size_t size) {
    if (fread(into, 1, size, file) != size) { errno = 0; fail("the scripts end early"); }
}

int main(int count, char **words) {
    if (count != 6) { errno = 0; fail("wants PORT SCRIPTS SECONDS WARM_UP_SECONDS PID"); }
    double seconds = atof(words[3]), warm_up = atof(words[4]);
    FILE *file = fopen(words[2], "rb");
    if (!file) fail("no scripts");
    make_crc_table();
    int32_t producers;
    take(file, &producers, 4);
    Producer *all = calloc((size_t)producers, sizeof *all);
    int poller = epoll_create1(0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(words[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int32_t i = 0; i < producers; i++) {
        Producer *producer = &all[i];
        int32_t epoch;
        take(file, &producer->steps, 4);
        take(file, &producer->id, 8);
        take(file, &epoch, 4);
        take(file, &producer->sequence, 4);
        producer->epoch = (int16_t)epoch;
        producer->script = calloc((size_t)producer->steps, sizeof *producer->script);
        for (int s = 0; s < producer->steps; s++) {
            Step *step = &producer->script[s];
            take(file, step, 5 * sizeof(int32_t));
            step->request = malloc((size_t)step->length);
            take(file, step->request, (size_t)step->length);
        }
        producer->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(producer->fd, (struct sockaddr *)&address, sizeof address)) fail("cannot connect");
        int on = 1;
        setsockopt(producer->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        struct epoll_event wish = {.events = EPOLLIN, .data.ptr = producer};
        epoll_ctl(poller, EPOLL_CTL_ADD, producer->fd, &wish);
    }
    for (int32_t i = 0; i < producers; i++) send_step(&all[i]);
    uint64_t begun = now_ns(), measured_from = 0;
    double cpu = 0;
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poller, events, EVENTS, 1000);
        for (int i = 0; i < ready; i++) receive(events[i].data.ptr);
        uint64_t now = now_ns();
        if (!measuring && (double)(now - begun) >= warm_up * 1e9) {
            measuring = 1;
            measured_from = now;
            cpu = cpu_seconds(words[5]);
        } else if (measuring && (double)(now - measured_from) >= seconds * 1e9) {
            double took = (double)(now - measured_from) / 1e9;
            errno = 0;
            if (!commits) fail("nothing was committed");
            printf("{\"transactions_s\": %.1f, \"commit_p50_us\": %u, \"commit_p99_us\": %u, \"cores\": %.3f, "
                   "\"retries\": %llu}\n", (double)commits / took, percentile(0.5), percentile(0.99),
                   (cpu_seconds(words[5]) - cpu) / took, (unsigned long long)retries);
            return 0;
        }
    }
}
