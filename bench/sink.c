/* The baseline of the raw rows: appends everything it reads to a file, and answers each request with the same bytes.

   sink ANSWER DATA     ANSWER is a file with one response and its length. DATA is created, and deleted before the
                        program prints its port. Serves until it is killed. */

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
#include <unistd.h>

enum { BUFFER = 128 * 1024, EVENTS = 256, MAX_TOGETHER = 256 };

typedef struct {
    int fd;
    unsigned char length[4]; /* the part of the length field that has arrived */
    unsigned have;
    uint32_t left;           /* bytes of the current request that have not arrived */
} Peer;

static char answer[1024], buffer[BUFFER];
static size_t answer_size;
static int data;

static void require(int is_so, const char *what) {
    if (is_so) return;
    perror(what);
    exit(1);
}

/* Returns the number of requests that end within these bytes. */
static unsigned requests_in(Peer *peer, const unsigned char *bytes, size_t size) {
    unsigned ended = 0;
    while (size) {
        if (peer->have < 4) {
            peer->length[peer->have++] = *bytes++;
            size--;
            if (peer->have == 4) {
                memcpy(&peer->left, peer->length, 4);
                peer->left = ntohl(peer->left);
            }
            continue;
        }
        size_t part = size < peer->left ? size : peer->left;
        bytes += part;
        size -= part;
        peer->left -= (uint32_t)part;
        if (!peer->left) {
            peer->have = 0;
            ended++;
        }
    }
    return ended;
}

static void serve(Peer *peer) {
    static char answers[MAX_TOGETHER * sizeof answer];
    ssize_t got = recv(peer->fd, buffer, BUFFER, 0);
    if (got <= 0) {
        close(peer->fd);
        free(peer);
        return;
    }
    require(write(data, buffer, (size_t)got) == got, "write");
    unsigned count = requests_in(peer, (unsigned char *)buffer, (size_t)got);
    for (unsigned done = 0; done < count;) {
        unsigned together = count - done < MAX_TOGETHER ? count - done : MAX_TOGETHER;
        for (unsigned i = 0; i < together; i++) memcpy(answers + i * answer_size, answer, answer_size);
        if (send(peer->fd, answers, together * answer_size, MSG_NOSIGNAL) < 0) return; /* the connection will be closed */
        done += together;
    }
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    require(file != NULL, "sink ANSWER DATA");
    data = open(argv[2], O_WRONLY | O_CREAT | O_EXCL, 0600);
    require(data >= 0 && !unlink(argv[2]), argv[2]);
    answer_size = fread(answer, 1, sizeof answer, file);
    int listener = socket(AF_INET, SOCK_STREAM, 0), poller = epoll_create1(0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    require(!bind(listener, (struct sockaddr *)&address, length) && !listen(listener, 128), "listen");
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL}, events[EVENTS];
    require(!epoll_ctl(poller, EPOLL_CTL_ADD, listener, &event), "epoll_ctl");
    for (;;) {
        int count = epoll_wait(poller, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr) {
                serve(events[i].data.ptr);
                continue;
            }
            Peer *peer = calloc(1, sizeof *peer);
            peer->fd = accept(listener, NULL, NULL);
            setsockopt(peer->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
            event.data.ptr = peer;
            require(!epoll_ctl(poller, EPOLL_CTL_ADD, peer->fd, &event), "epoll_ctl");
        }
    }
}
