/* Generates the load of the raw rows: each connection keeps some Produce requests in flight, and counts the responses.

   load HOST_PORT FRAMES CONNECTIONS IN_FLIGHT SECONDS WARM_UP_SECONDS ERROR_AT PID

   FRAMES    a file of requests with their lengths, ready to be sent; connection i repeatedly sends request i
   ERROR_AT  position of the error code (int16), which must be 0, after the length of a response
   PID       the process whose CPU time is read at the beginning and the end of the measured time

   Prints one line of JSON. If a response is wrong, prints the reason and exits with status 1. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { ANSWER_MAX = 4096, SLOWEST_US = 4 * 1000 * 1000, EVENTS = 256 };

typedef struct {
    int fd;
    const char *burst;  /* IN_FLIGHT copies of the request */
    size_t burst_size, burst_at;
    size_t unsent;      /* bytes of requests that may be sent now */
    uint64_t *sent_ns;  /* ring of the times at which the requests in flight were sent */
    unsigned oldest;
    char answer[ANSWER_MAX];
    size_t have;
    int waits_to_write;
} Connection;

static int poller, in_flight, error_at, measuring;
static uint64_t answers;
static uint32_t slower_by_us[SLOWEST_US + 1];

static void fail(const char *what) {
    fprintf(stderr, "load: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
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
    if (!fields || sscanf(fields, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("unreadable /proc/PID/stat");
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static uint32_t size_at(const char *bytes) {
    uint32_t size;
    memcpy(&size, bytes, 4);
    return ntohl(size);
}

static void want(Connection *c, int writing) {
    struct epoll_event event = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl");
    c->waits_to_write = writing;
}

static void send_on(Connection *c) {
    while (c->unsent) {
        size_t size = c->burst_size - c->burst_at;
        if (size > c->unsent) size = c->unsent;
        ssize_t sent = send(c->fd, c->burst + c->burst_at, size, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno != EAGAIN) fail("send");
            if (!c->waits_to_write) want(c, 1);
            return;
        }
        c->unsent -= (size_t)sent;
        c->burst_at = (c->burst_at + (size_t)sent) % c->burst_size;
    }
    if (c->waits_to_write) want(c, 0);
}

static void take_answers(Connection *c) {
    ssize_t got = recv(c->fd, c->answer + c->have, ANSWER_MAX - c->have, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the broker closed a connection");
    c->have += (size_t)got;
    size_t at = 0;
    uint64_t now = now_ns();
    while (c->have - at >= 4) {
        size_t size = size_at(c->answer + at);
        if (size > ANSWER_MAX - 4 || size < (size_t)error_at + 2) {
            errno = 0;
            fail("an answer of an impossible size");
        }
        if (c->have - at < size + 4) break;
        const unsigned char *code = (unsigned char *)c->answer + at + 4 + error_at;
        if (code[0] || code[1]) {
            fprintf(stderr, "load: a request was answered with error %d\n", code[0] << 8 | code[1]);
            exit(1);
        }
        at += size + 4;
        if (measuring) {
            uint64_t us = (now - c->sent_ns[c->oldest]) / 1000;
            slower_by_us[us > SLOWEST_US ? SLOWEST_US : us]++;
            answers++;
        }
        c->sent_ns[c->oldest] = now;
        c->oldest = (c->oldest + 1) % (unsigned)in_flight;
        c->unsent += c->burst_size / (size_t)in_flight;
    }
    memmove(c->answer, c->answer + at, c->have - at);
    c->have -= at;
    if (at && !c->waits_to_write) send_on(c);
}

static unsigned percentile(double share) {
    uint64_t below = (uint64_t)(share * (double)answers), seen = 0;
    for (unsigned us = 0; us <= SLOWEST_US; us++)
        if ((seen += slower_by_us[us]) > below) return us;
    return SLOWEST_US;
}

static char *read_all(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size);
    if (!bytes || fread(bytes, 1, *size, file) != *size) fail(path);
    fclose(file);
    return bytes;
}

static void open_connection(Connection *c, int port, const char *frame, size_t frame_size) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    int one = 1;
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->burst_size = frame_size * (size_t)in_flight;
    char *burst = malloc(c->burst_size);
    for (int i = 0; i < in_flight; i++) memcpy(burst + (size_t)i * frame_size, frame, frame_size);
    c->burst = burst;
    c->unsent = c->burst_size;
    c->sent_ns = calloc((size_t)in_flight, sizeof *c->sent_ns);
    for (int i = 0; i < in_flight; i++) c->sent_ns[i] = now_ns();
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
}

static void run_until(uint64_t end_ns) {
    struct epoll_event events[EVENTS];
    while (now_ns() < end_ns) {
        int count = epoll_wait(poller, events, EVENTS, 100);
        for (int i = 0; i < count; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) send_on(c);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) take_answers(c);
        }
    }
}

int main(int argc, char **argv) {
    if (argc != 9) fail("see the top of load.c for the arguments");
    int port = atoi(argv[1]), connections = atoi(argv[3]);
    double seconds = atof(argv[5]), warm_up_s = atof(argv[6]);
    in_flight = atoi(argv[4]);
    error_at = atoi(argv[7]);
    size_t size, at = 0;
    char *frames = read_all(argv[2], &size);
    poller = epoll_create1(0);
    Connection *all = calloc((size_t)connections, sizeof *all);
    for (int i = 0; i < connections; i++) {
        if (at >= size) at = 0;
        size_t frame_size = 4 + size_at(frames + at);
        open_connection(&all[i], port, frames + at, frame_size);
        at += frame_size;
    }
    for (int i = 0; i < connections; i++) send_on(&all[i]);
    run_until(now_ns() + (uint64_t)(warm_up_s * 1e9));
    double cpu_before = cpu_seconds(argv[8]);
    uint64_t begun = now_ns();
    measuring = 1;
    run_until(begun + (uint64_t)(seconds * 1e9));
    double took = (double)(now_ns() - begun) / 1e9, cpu = cpu_seconds(argv[8]) - cpu_before;
    if (!answers) {
        errno = 0;
        fail("no answer came");
    }
    printf("{\"requests_s\": %.1f, \"p50_us\": %u, \"p99_us\": %u, \"cores\": %.3f}\n", (double)answers / took,
           percentile(0.5), percentile(0.99), cpu / took);
    return 0;
}
