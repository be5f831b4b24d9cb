// Programs that use AF_ALG, one for each name on the command line. Exit status 0 when all is as on Linux; otherwise the
// line that was not.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/if_alg.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #x, errno); _exit(1); } } while (0)

// SHA-256 of "abc" and of nothing, HMAC of "abc" with the key "k".
static const unsigned char ABC[4] = { 0xba, 0x78, 0x16, 0xbf }, EMPTY[4] = { 0xe3, 0xb0, 0xc4, 0x42 };
static const unsigned char MAC[4] = { 0x34, 0x2e, 0x51, 0x9c };

static int tfm(const char *type, const char *name) {
    struct sockaddr_alg sa = { .salg_family = AF_ALG };
    strcpy((char *)sa.salg_type, type);
    strcpy((char *)sa.salg_name, name);
    int fd = socket(AF_ALG, SOCK_SEQPACKET, 0);
    MUST(fd >= 0);
    MUST(bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0);
    return fd;
}

static int op(int fd) { int o = accept(fd, 0, 0); MUST(o >= 0); return o; }

static int hash_is(int o, const unsigned char *want) {
    unsigned char d[32];
    return recv(o, d, sizeof d, 0) == 32 && !memcmp(d, want, 4);
}

static int cbc(int *t) {
    *t = tfm("skcipher", "cbc(aes)");
    unsigned char key[16];
    for (int i = 0; i < 16; i++) key[i] = i;
    MUST(setsockopt(*t, SOL_ALG, ALG_SET_KEY, key, 16) == 0);
    return op(*t);
}

static ssize_t send_iv(int o, const void *data, size_t len, int flags) {
    char control[CMSG_SPACE(4) + CMSG_SPACE(20)] = { 0 };
    struct iovec v = { (void *)data, len };
    struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_OP, c->cmsg_len = CMSG_LEN(4);
    *(unsigned *)CMSG_DATA(c) = ALG_OP_ENCRYPT;
    c = CMSG_NXTHDR(&m, c);
    c->cmsg_level = SOL_ALG, c->cmsg_type = ALG_SET_IV, c->cmsg_len = CMSG_LEN(20);
    *(unsigned *)CMSG_DATA(c) = 16;
    return sendmsg(o, &m, flags);
}

static void basic(void) {
    int t = tfm("hash", "sha256"), o = op(t);
    MUST(send(o, "abc", 3, 0) == 3 && hash_is(o, ABC));
    MUST(write(o, "abc", 3) == 3);
    unsigned char d[32];
    MUST(read(o, d, 32) == 32 && !memcmp(d, ABC, 4));
    struct iovec v[2] = { { "a", 1 }, { "bc", 2 } };
    MUST(writev(o, v, 2) == 3 && hash_is(o, ABC));
    struct iovec r[2] = { { d, 2 }, { d + 2, 30 } };
    MUST(send(o, "abc", 3, 0) == 3 && readv(o, r, 2) == 32 && !memcmp(d, ABC, 4));
    MUST(send(t, "x", 1, 0) == -1 && errno == EOPNOTSUPP);
    MUST(bind(o, (struct sockaddr *)d, 88) == -1 && errno == EOPNOTSUPP);
    MUST(socket(AF_ALG, SOCK_STREAM, 0) == -1 && errno == ESOCKTNOSUPPORT);
    int p[2];
    MUST(pipe(p) == 0 && write(p[1], "abc", 3) == 3);
    MUST(splice(p[0], 0, o, 0, 3, 0) == 3 && hash_is(o, ABC));
    MUST(send(o, (void *)8, 3, 0) == -1 && errno == EFAULT);
    int ct, c = cbc(&ct);
    unsigned char in[32] = { 0 }, out[32];
    MUST(send_iv(c, in, 32, 0) == 32 && recv(c, out, 32, 0) == 32 && memcmp(in, out, 32));
    MUST(recv(c, out, 16, MSG_DONTWAIT) == -1 && errno == EAGAIN);
    close(o), close(t);
    MUST(send(o, "x", 1, 0) == -1 && errno == EBADF);
}

static void dups(void) {
    int t = tfm("hash", "sha256"), o = op(t), d = dup(o);
    MUST(d >= 0 && send(o, "ab", 2, MSG_MORE) == 2 && send(d, "c", 1, MSG_MORE) == 1 && hash_is(o, ABC));
    int e = fcntl(o, F_DUPFD_CLOEXEC, 0);
    MUST(e >= 0 && (fcntl(e, F_GETFD) & FD_CLOEXEC));
    // The lowest number that is free, from an argument on.
    struct rlimit limit;
    int g = fcntl(o, F_DUPFD, d + 5);
    MUST(g >= d + 5 && send(g, "", 0, MSG_MORE) == 0 && close(g) == 0 && getrlimit(RLIMIT_NOFILE, &limit) == 0);
    MUST(fcntl(o, F_DUPFD, limit.rlim_cur) == -1 && errno == EINVAL && fcntl(o, F_DUPFD, -1) == -1 && errno == EINVAL);
    close(o), close(d);
    MUST(send(e, "abc", 3, 0) == 3 && hash_is(e, ABC));
    int f = open("/dev/null", O_RDWR);
    MUST(dup2(f, e) == e && write(e, "abc", 3) == 3 && read(e, &f, 4) == 0);
}

static void end(pid_t q) { int s; MUST(waitpid(q, &s, 0) == q && s == 0); }

static void forks(void) {
    int t = tfm("hash", "sha256"), o = op(t);
    MUST(send(o, "a", 1, MSG_MORE) == 1);
    pid_t p = fork();
    if (!p) {
        MUST(send(o, "b", 1, MSG_MORE) == 1);
        pid_t q = fork();
        if (!q) { MUST(send(o, "c", 1, MSG_MORE) == 1); _exit(0); }
        int s;
        MUST(waitpid(q, &s, 0) == q && s == 0);
        close(o);
        int n = op(t);
        MUST(send(n, "abc", 3, 0) == 3 && hash_is(n, ABC));
        _exit(0);
    }
    int s;
    MUST(waitpid(p, &s, 0) == p && s == 0);
    MUST(hash_is(o, ABC));
    // A keyed operation of a child that was killed does not keep its parent's transform busy.
    int h = tfm("hash", "hmac(sha256)");
    MUST(setsockopt(h, SOL_ALG, ALG_SET_KEY, "k", 1) == 0);
    int ready[2];
    MUST(pipe(ready) == 0);
    if (!(p = fork())) { op(h); MUST(write(ready[1], "x", 1) == 1); pause(); _exit(0); }
    char b;
    MUST(read(ready[0], &b, 1) == 1);
    MUST(setsockopt(h, SOL_ALG, ALG_SET_KEY, "k", 1) == -1 && errno == EBUSY);
    kill(p, SIGKILL);
    MUST(waitpid(p, &s, 0) == p);
    MUST(setsockopt(h, SOL_ALG, ALG_SET_KEY, "k", 1) == 0);
    // An operation draws the key that a child has set from its transform, which has it still when the operation is closed.
    int h2 = tfm("hash", "hmac(sha256)"), k = op(h2);
    if (!(p = fork())) { MUST(setsockopt(h2, SOL_ALG, ALG_SET_KEY, "k", 1) == 0); _exit(0); }
    end(p);
    for (int i = 0; i < 2; i++, k = op(h2)) MUST(send(k, "abc", 3, 0) == 3 && hash_is(k, MAC) && close(k) == 0);
    // A vforked child closes its own copies.
    int o2 = op(t);
    if (!(p = vfork())) { close(o2); _exit(0); }
    MUST(waitpid(p, &s, 0) == p && send(o2, "abc", 3, 0) == 3 && hash_is(o2, ABC));
}

static void *hasher(void *arg) {
    int t = *(int *)arg;
    for (int i = 0; i < 300; i++) {
        int o = op(t);
        MUST(send(o, "abc", 3, 0) == 3 && hash_is(o, ABC));
        int d = dup(o);
        MUST(close(o) == 0 && send(d, "", 0, 0) == 0 && hash_is(d, EMPTY) && close(d) == 0);
    }
    return 0;
}

static void *splice_it(void *arg) {
    int *fds = arg;
    MUST(splice(fds[0], 0, fds[1], 0, 32, 0) == 32);
    return 0;
}

static void threads(void) {
    int t = tfm("hash", "sha256");
    pthread_t p[4];
    for (int i = 0; i < 4; i++) MUST(pthread_create(&p[i], 0, hasher, &t) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t q = fork();
        if (!q) { hasher(&t); _exit(0); }
        int s;
        MUST(waitpid(q, &s, 0) == q && s == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(p[i], 0);
    // A call that waits for room in a pipe keeps nobody from forking. No two of these pieces share a page.
    int full[2], o = op(t);
    unsigned char piece[4090] = { 0 };
    MUST(pipe(full) == 0 && fcntl(full[1], F_SETFL, O_NONBLOCK) == 0);
    while (write(full[1], piece, sizeof piece) > 0) { }
    MUST(errno == EAGAIN && fcntl(full[1], F_SETFL, 0) == 0 && send(o, "abc", 3, 0) == 3);
    MUST(pthread_create(&p[0], 0, splice_it, (int[]){ o, full[1] }) == 0);
    usleep(10000);
    pid_t q = fork();
    if (!q) _exit(0);
    end(q);
    MUST(read(full[0], piece, sizeof piece) == sizeof piece);
    pthread_join(p[0], 0);
}

// 8 threads, each of which forks children that use the sockets of all.
static void *forker(void *arg) {
    int t = *(int *)arg;
    for (int i = 0; i < 8; i++) {
        int o = op(t);
        MUST(send(o, "a", 1, MSG_MORE) == 1);
        pid_t q = fork();
        if (!q) { MUST(send(o, "b", 1, MSG_MORE) == 1); int n = op(t); MUST(send(n, "abc", 3, 0) == 3 && hash_is(n, ABC)); _exit(0); }
        int s;
        MUST(waitpid(q, &s, 0) == q && s == 0);
        for (int n = 0; n < 10; n++) { int p = op(t); MUST(send(p, "abc", 3, 0) == 3 && hash_is(p, ABC) && close(p) == 0); }
        MUST(send(o, "c", 1, 0) == 1 && hash_is(o, ABC) && close(o) == 0);
    }
    return 0;
}

static void crowd(void) {
    int t = tfm("hash", "sha256");
    pthread_t p[8];
    for (int i = 0; i < 8; i++) MUST(pthread_create(&p[i], 0, forker, &t) == 0);
    for (int i = 0; i < 8; i++) pthread_join(p[i], 0);
}

static atomic_int over;

static void *hash_on(void *arg) {
    while (!over) {
        int o = op(*(int *)arg);
        MUST(send(o, "abc", 3, 0) == 3 && hash_is(o, ABC) && close(o) == 0);
    }
    return 0;
}

static void *receive(void *arg) {
    unsigned char out[16];
    MUST(recv(*(int *)arg, out, 16, 0) == 16);
    return 0;
}

// The process parts from its children again and again while its threads are in calls on the sockets, or wait in one.
static void partings(void) {
    int t = tfm("hash", "sha256"), ct, c = cbc(&ct);
    pthread_t p[4], waiter;
    unsigned char in[16] = { 0 };
    alarm(60);
    for (int i = 0; i < 4; i++) MUST(pthread_create(&p[i], 0, hash_on, &t) == 0);
    for (int i = 0; i < 30; i++) {
        MUST(pthread_create(&waiter, 0, receive, &c) == 0);
        pid_t q = fork();
        if (!q) _exit(0);
        end(q);
        // The first call without the child parts from it; the second one is no longer shared.
        for (int n = 0; n < 4; n++) MUST(fcntl(c, F_SETFL, 0) == 0);
        MUST(send_iv(c, in, 16, 0) == 16);
        pthread_join(waiter, 0);
    }
    // A change of rights parts from everybody at once.
    MUST(pthread_create(&waiter, 0, receive, &c) == 0);
    int hold[2];
    MUST(pipe(hold) == 0);
    pid_t q = fork();
    if (!q) { close(hold[1]); char b; MUST(read(hold[0], &b, 1) == 0); _exit(0); }
    MUST(setresgid(-1, getuid() ? -1 : 65534, -1) == 0);
    MUST(send_iv(c, in, 16, 0) == 16);
    pthread_join(waiter, 0);
    close(hold[1]);
    end(q);
    // What was private is shared again.
    MUST(send_iv(c, in, 0, MSG_MORE) == 0);
    if (!(q = fork())) { MUST(send(c, in, 16, 0) == 16); _exit(0); }
    end(q);
    MUST(receive(&c) == 0);
    over = 1;
    for (int i = 0; i < 4; i++) pthread_join(p[i], 0);
}

struct closing { int fd; pthread_barrier_t *begin; };

static void *close_it(void *arg) {
    struct closing *c = arg;
    pthread_barrier_wait(c->begin);
    MUST(close(c->fd) == 0);
    return 0;
}

static void *receive_from(void *arg) {
    struct closing *c = arg;
    unsigned char out[16];
    ssize_t n;
    pthread_barrier_wait(c->begin);
    while ((n = recv(c->fd, out, 16, 0)) == -1 && errno == EINTR) { }
    // The descriptor was closed before; the other one is not.
    while (n == -1 && (n = recv(c[1].fd, out, 16, 0)) == -1 && errno == EINTR) { }
    MUST(n == 16);
    return 0;
}

static void nothing(int s) { (void)s; }

// Descriptors are closed while other threads wait for them, for the lock of what they share with a child, or fork.
static void closings(void) {
    unsigned char in[16] = { 0 };
    struct sigaction sa = { .sa_handler = nothing };
    sigaction(SIGUSR1, &sa, 0);
    alarm(60);
    for (int i = 0; i < 30; i++) {
        int ct, c = cbc(&ct), d = dup(c), o = op(ct), h = tfm("hash", "hmac(sha256)"), k = op(h);
        pid_t q = fork();
        if (!q) {
            MUST(send_iv(d, in, 16, 0) == 16);
            if (i % 3 == 0) kill(getpid(), SIGKILL);
            _exit(0);
        }
        pthread_barrier_t begin;
        pthread_barrier_init(&begin, 0, 5);
        struct closing all[5] = { { c, &begin }, { d, &begin }, { ct, &begin }, { o, &begin }, { k, &begin } };
        pthread_t p[5];
        MUST(pthread_create(&p[0], 0, receive_from, &all[0]) == 0);
        for (int n = 0; n < 4; n++) MUST(pthread_create(&p[n + 1], 0, close_it, &all[n == 0 ? 0 : n + 1]) == 0);
        // Operations that are closed at this moment are looked at, and the children of a fork share what is left.
        MUST(setsockopt(h, SOL_ALG, ALG_SET_KEY, "k", 1) == 0 || errno == EBUSY);
        pid_t r = fork();
        if (!r) _exit(0);
        end(r);
        // A call that begins while its descriptor is being closed may reach the kernel's socket of that number, where only a
        // signal ends it.
        while (pthread_tryjoin_np(p[0], 0) == EBUSY) { pthread_kill(p[0], SIGUSR1); usleep(1000); }
        for (int n = 1; n < 5; n++) pthread_join(p[n], 0);
        int s;
        MUST(waitpid(q, &s, 0) == q);
        close(d), close(h);
    }
}

// Children exec while their other threads are in calls on sockets that this process has, too.
static void execs(void) {
    int t = tfm("hash", "sha256");
    pthread_t p[2];
    alarm(60);
    for (int i = 0; i < 2; i++) MUST(pthread_create(&p[i], 0, hash_on, &t) == 0);
    for (int i = 0; i < 8; i++) {
        pid_t q = fork();
        if (!q) {
            pthread_t r[4];
            for (int n = 0; n < 4; n++) MUST(pthread_create(&r[n], 0, hash_on, &t) == 0);
            usleep(500 * i);
            execl("/proc/self/exe", "alg", "dups", (char *)0);
            _exit(1);
        }
        end(q);
    }
    over = 1;
    for (int i = 0; i < 2; i++) pthread_join(p[i], 0);
}

static int in_handler, handled, refused;
static void handler(int s) {
    (void)s;
    int e = errno;
    unsigned char d[32];
    if (send(in_handler, "abc", 3, 0) == 3 && recv(in_handler, d, 32, 0) == 32) handled++;
    else if (errno == EBUSY) refused++;
    errno = e;
}

static void signals(void) {
    int t = tfm("hash", "sha256"), o = op(t);
    in_handler = op(t);
    signal(SIGALRM, handler);
    struct itimerval it = { { 0, 500 }, { 0, 500 } };
    MUST(setitimer(ITIMER_REAL, &it, 0) == 0);
    for (int i = 0; i < 30000 || handled < 3; i++) {
        int n = op(t);
        MUST(send(o, "abc", 3, 0) == 3 && hash_is(o, ABC));
        close(n);
    }
    it = (struct itimerval){ 0 };
    setitimer(ITIMER_REAL, &it, 0);
    fprintf(stderr, "handled %d, refused %d\n", handled, refused);
}

static void blocking(void) {
    int t, o = cbc(&t);
    unsigned char in[16] = { 0 }, out[16];
    // Without SA_RESTART a signal ends the wait.
    struct sigaction sa = { .sa_handler = nothing };
    sigaction(SIGALRM, &sa, 0);
    alarm(1);
    MUST(recv(o, out, 16, 0) == -1 && errno == EINTR);
    pid_t p = fork();
    if (!p) { usleep(200000); MUST(send_iv(o, in, 16, 0) == 16); _exit(0); }
    MUST(recv(o, out, 16, 0) == 16);
    int s;
    MUST(waitpid(p, &s, 0) == p && s == 0);
}

static void polls(void) {
    int t = tfm("hash", "sha256"), h = op(t), ct, c = cbc(&ct);
    struct pollfd p[3] = { { t, POLLIN | POLLOUT, 0 }, { h, POLLIN | POLLOUT, 0 }, { c, POLLIN | POLLOUT, 0 } };
    MUST(poll(p, 3, 0) == 1 && !p[0].revents && !p[1].revents && p[2].revents == (POLLIN | POLLOUT));
    fcntl(c, F_SETFL, O_NONBLOCK);
    char page[4096] = { 0 };
    MUST(send_iv(c, page, 0, MSG_MORE) == 0);
    while (send(c, page, sizeof page, MSG_MORE) > 0) { }
    MUST(errno == EAGAIN && poll(p + 2, 1, 0) == 1 && p[2].revents == POLLIN);
    int e = epoll_create1(0);
    struct epoll_event ev = { .events = EPOLLIN | EPOLLOUT };
    MUST(epoll_ctl(e, EPOLL_CTL_ADD, c, &ev) == 0 && epoll_wait(e, &ev, 1, 0) == 1 && ev.events == EPOLLIN);
    MUST(read(c, page, sizeof page) == sizeof page);
    MUST(epoll_wait(e, &ev, 1, 0) == 1 && ev.events == (EPOLLIN | EPOLLOUT));
    if (c < FD_SETSIZE) {
        fd_set w;
        FD_ZERO(&w); FD_SET(c, &w); FD_SET(h, &w);
        struct timeval zero = { 0, 0 };
        MUST(select(c + 1, 0, &w, 0, &zero) == 1 && FD_ISSET(c, &w));
    }
}

static void close_all(void) {
    int t = tfm("hash", "sha256"), o = op(t);
    MUST(send(o, "ab", 2, MSG_MORE) == 2);
    MUST(syscall(SYS_close_range, 3u, ~0u, 0) == 0);
    MUST(send(o, "c", 1, 0) == -1 && errno == EBADF);
    int f = open("/dev/null", O_RDWR);
    MUST(f == 3 && write(f, "abc", 3) == 3);
    basic();
    for (int i = 3; i < 256; i++) close(i);
    basic();
}

static void many(void) {
    // No growth over many transforms and operations.
    for (int round = 0; round < 20; round++) {
        int fds[200];
        for (int i = 0; i < 200; i++) fds[i] = tfm("hash", "sha256");
        for (int i = 0; i < 200; i++) { int o = op(fds[i]); MUST(send(o, "abc", 3, 0) == 3 && hash_is(o, ABC)); close(o); }
        for (int i = 0; i < 200; i++) close(fds[i]);
    }
}

#define FAILS(call, number) MUST((call) == -1 && errno == (number))

static int in_pipe(int pipe) { int n = -1; MUST(ioctl(pipe, FIONREAD, &n) == 0); return n; }

// The ends that splice and sendfile take, and which mistake is found first.
static void splices(void) {
    int t = tfm("hash", "sha256"), o = op(t), other = op(t), ct, c = cbc(&ct), p[2], q[2], full[2], gone[2], un[2];
    int file = open("/proc/self/exe", O_RDONLY), path = open("/proc/self/exe", O_PATH), folder = open("/", O_RDONLY);
    int sink = open("/dev/null", O_WRONLY), zero = open("/dev/zero", O_RDONLY), event = eventfd(1, 0);
    unsigned char out[64];
    char page[4096] = { 0 };
    loff_t at = 0, before = -1, *bad = (void *)8;
    signal(SIGPIPE, SIG_IGN);
    MUST(pipe(p) == 0 && write(p[1], "abcabcabc", 9) == 9 && pipe(q) == 0 && pipe(gone) == 0 && close(gone[0]) == 0);
    MUST(pipe2(full, O_NONBLOCK) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, un) == 0 && write(un[1], "x", 1) == 1);
    while (write(full[1], page, sizeof page) > 0) { }
    // Nothing to do, flags, descriptors, offsets, what they are open for, what they are.
    MUST(splice(p[0], 0, o, 0, 0, 64) == 0 && splice(99, 0, o, 0, 0, 0) == 0);
    FAILS(splice(99, 0, o, 0, 3, 64), EINVAL);
    FAILS(splice(99, 0, o, 0, 3, 0), EBADF);
    FAILS(splice(o, 0, 99, 0, 3, 0), EBADF);
    FAILS(splice(path, 0, o, 0, 3, 0), EBADF);
    FAILS(splice(p[0], bad, o, bad, 3, 0), ESPIPE);
    FAILS(splice(p[1], &at, o, 0, 3, 0), ESPIPE);
    FAILS(splice(p[0], 0, o, bad, 3, 0), EFAULT);
    FAILS(splice(file, bad, o, 0, 3, 0), EFAULT);
    FAILS(splice(p[1], 0, o, &at, 3, 0), EBADF);
    FAILS(splice(sink, 0, o, 0, 3, 0), EBADF);
    FAILS(splice(p[0], 0, o, &at, 3, 0), EINVAL);
    FAILS(splice(p[0], 0, o, 0, -1, 0), EINVAL);
    FAILS(splice(file, 0, o, 0, 3, 0), EINVAL);
    FAILS(splice(un[0], 0, o, 0, 3, 0), EINVAL);
    FAILS(splice(folder, 0, o, 0, 3, 0), EINVAL);
    FAILS(splice(c, 0, o, bad, 3, 0), EFAULT);
    FAILS(splice(o, 0, other, 0, 3, 0), EINVAL);
    // Nor is anything taken from a socket that poll finds ready.
    struct pollfd ready = { c, POLLIN | POLLOUT, 0 };
    MUST(send_iv(c, page, 16, 0) == 16 && poll(&ready, 1, 0) == 1 && ready.revents == (POLLIN | POLLOUT));
    FAILS(splice(c, 0, o, 0, 3, 0), EINVAL);
    MUST(poll(&ready, 1, 0) == 1 && ready.revents == (POLLIN | POLLOUT) && recv(c, out, 16, 0) == 16);
    FAILS(splice(q[0], 0, o, 0, 3, SPLICE_F_NONBLOCK), EAGAIN);
    MUST(fcntl(q[0], F_SETFL, O_NONBLOCK) == 0);
    FAILS(splice(q[0], 0, o, 0, 3, 0), EAGAIN);
    MUST(in_pipe(p[0]) == 9 && splice(p[0], 0, o, 0, 3, 0) == 3 && hash_is(o, ABC) && in_pipe(p[0]) == 6);
    // The other way.
    FAILS(splice(o, 0, q[1], 0, 32, 64), EINVAL);
    FAILS(splice(o, &at, q[1], bad, 32, 0), ESPIPE);
    FAILS(splice(o, bad, q[1], 0, 32, 0), EFAULT);
    FAILS(splice(o, &at, q[0], 0, 32, 0), EBADF);
    FAILS(splice(o, 0, file, 0, 32, 0), EBADF);
    FAILS(splice(o, &at, q[1], 0, 32, 0), EINVAL);
    FAILS(splice(o, 0, sink, 0, 32, 0), EINVAL);
    FAILS(splice(o, 0, q[1], 0, -1, 0), EINVAL);
    FAILS(splice(t, 0, q[1], 0, 32, 0), EOPNOTSUPP);
    // Room in the pipe comes first: the digest is still there.
    MUST(send(o, "abc", 3, 0) == 3);
    FAILS(splice(t, 0, full[1], 0, 32, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(splice(o, 0, full[1], 0, 32, 0), EAGAIN);
    MUST(fcntl(full[1], F_SETFL, 0) == 0);
    FAILS(splice(o, 0, full[1], 0, 32, SPLICE_F_NONBLOCK), EAGAIN);
    FAILS(splice(o, 0, gone[1], 0, 32, 0), EPIPE);
    MUST(splice(o, 0, q[1], 0, 32, 0) == 32 && read(q[0], out, 64) == 32 && !memcmp(out, ABC, 4));
    // sendfile: the offset, the file, its position, what it is.
    FAILS(sendfile(o, 99, bad, 3), EFAULT);
    FAILS(sendfile(o, 99, 0, 3), EBADF);
    FAILS(sendfile(o, path, 0, 3), EBADF);
    FAILS(sendfile(o, p[1], 0, 3), EBADF);
    FAILS(sendfile(o, sink, 0, 3), EBADF);
    FAILS(sendfile(o, p[0], &before, 3), ESPIPE);
    FAILS(sendfile(o, un[0], &at, 1), ESPIPE);
    FAILS(sendfile(o, c, &at, 1), ESPIPE);
    FAILS(sendfile(o, p[0], 0, 0), EINVAL);
    FAILS(sendfile(o, un[0], 0, 1), EINVAL);
    FAILS(sendfile(o, event, 0, 8), EINVAL);
    FAILS(sendfile(o, event, &at, 8), ESPIPE);
    FAILS(sendfile(o, c, 0, 3), EINVAL);
    FAILS(sendfile(o, folder, 0, 3), EINVAL);
    FAILS(sendfile(o, file, &before, 3), EINVAL);
    FAILS(sendfile(o, file, 0, -1), EINVAL);
    FAILS(sendfile(t, p[0], 0, 3), EINVAL);
    FAILS(sendfile(t, file, 0, 3), EOPNOTSUPP);
    MUST(sendfile(o, folder, 0, 0) == 0 && sendfile(o, file, 0, 0) == 0 && lseek(file, 0, SEEK_CUR) == 0);
    MUST(in_pipe(p[0]) == 6 && in_pipe(un[0]) == 1);
    MUST(sendfile(o, zero, 0, 3) == 3 && sendfile(o, file, &at, 3) == 3 && at == 3 && lseek(file, 0, SEEK_CUR) == 0);
    MUST(sendfile(o, file, 0, 5) == 5 && lseek(file, 0, SEEK_CUR) == 5);
    // What only pipes have.
    struct iovec none = { page, 0 }, some = { page, 3 };
    FAILS(tee(o, q[1], 3, 0), EINVAL);
    FAILS(tee(q[0], o, 3, 0), EINVAL);
    FAILS(tee(q[0], o, 0, 64), EINVAL);
    FAILS(vmsplice(o, &none, 0, 64), EINVAL);
    FAILS(vmsplice(o, 0, 1, 0), EFAULT);
    FAILS(vmsplice(o, &some, 1, 0), EBADF);
    MUST(tee(q[0], o, 0, 0) == 0 && vmsplice(o, 0, 0, 0) == 0 && vmsplice(o, &none, 1, 0) == 0);
}

static int filled(int *p) {
    char page[4096] = { 0 };
    MUST(pipe2(p, O_NONBLOCK) == 0);
    while (write(p[1], page, sizeof page) > 0) { }
    MUST(errno == EAGAIN && fcntl(p[1], F_SETFL, 0) == 0);
    return p[1];
}

static void *read_later(void *arg) {
    int *p = arg;
    char page[4096];
    for (int i = 0; i < 3; i++) { usleep(50000); MUST(kill(getpid(), SIGALRM) == 0); }
    usleep(50000);
    MUST(read(p[0], page, sizeof page) == sizeof page);
    return 0;
}

// A splice that waits for room in a pipe goes on after a handler with SA_RESTART, and ends with any other.
static void full_pipe(void) {
    int t = tfm("hash", "sha256"), o = op(t), p[2];
    struct sigaction sa = { .sa_handler = nothing };
    sigset_t alarms;
    pthread_t reader;
    sigemptyset(&alarms), sigaddset(&alarms, SIGALRM);
    MUST(send(o, "abc", 3, 0) == 3);
    sigaction(SIGALRM, &sa, 0);
    struct itimerval soon = { .it_value = { 0, 50000 } };
    MUST(setitimer(ITIMER_REAL, &soon, 0) == 0);
    FAILS(splice(o, 0, filled(p), 0, 32, 0), EINTR);
    sa.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &sa, 0);
    // The reader blocks the signal, so that it comes to the thread that waits.
    MUST(pthread_sigmask(SIG_BLOCK, &alarms, 0) == 0 && pthread_create(&reader, 0, read_later, p) == 0);
    MUST(pthread_sigmask(SIG_UNBLOCK, &alarms, 0) == 0);
    MUST(splice(o, 0, p[1], 0, 32, 0) == 32 && pthread_join(reader, 0) == 0);
}

// Calls that do not concern us, with lengths that the kernel refuses before it reads what they tell of.
static void others_mistakes(void) {
    int t = tfm("hash", "sha256"), o = op(t), un[2];
    struct rlimit limit;
    struct pollfd one = { o, POLLIN, 0 };
    MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    FAILS(poll(&one, limit.rlim_cur + 1, 0), EINVAL);
    FAILS(syscall(SYS_poll, &one, limit.rlim_cur + (1 << 20), 0), EINVAL);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, un) == 0);
    union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr head; } control = { 0 };
    struct iovec data = { "x", 1 };
    struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    size_t wrong[] = { (size_t)1 << 40, sizeof control + 4, 0, 15 };
    for (int i = 0; i < 4; i++) {
        control.head = (struct cmsghdr){ .cmsg_len = wrong[i], .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.head), &o, sizeof o);
        FAILS(sendmsg(un[0], &m, 0), EINVAL);
    }
    // As it should be, the socket arrives.
    control.head.cmsg_len = CMSG_LEN(sizeof o);
    MUST(sendmsg(un[0], &m, 0) == 1);
    memset(&control, 0, sizeof control);
    char got;
    data.iov_base = &got;
    MUST(recvmsg(un[1], &m, 0) == 1);
    int same;
    memcpy(&same, CMSG_DATA(&control.head), sizeof same);
    MUST(send(o, "ab", 2, MSG_MORE) == 2 && send(same, "c", 1, 0) == 1 && hash_is(o, ABC));
}

static void *splice_from(void *arg) {
    int *fds = arg;
    MUST(splice(fds[0], 0, fds[1], 0, 3, 0) == 3);
    return 0;
}

// A splice that waits for a pipe keeps no other call waiting, and goes on when there is something in it.
static void beside(void) {
    int t = tfm("hash", "sha256"), o = op(t), other = op(t), p[2];
    pthread_t waiter;
    alarm(60);
    MUST(pipe(p) == 0 && pthread_create(&waiter, 0, splice_from, (int[]){ p[0], o }) == 0);
    usleep(50000);
    MUST(send(other, "abc", 3, 0) == 3 && hash_is(other, ABC));
    MUST(write(p[1], "abc", 3) == 3 && pthread_join(waiter, 0) == 0 && hash_is(o, ABC));
}

static atomic_int interrupted;

// Waits until a thread sleeps: in a launcher's hands that looks like waiting for a disk.
static void until_it_sleeps(pid_t tid) {
    char path[64], line[256], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    while (state != 'S' && state != 'D') {
        FILE *f = fopen(path, "r");
        MUST(f && fgets(line, sizeof line, f) && fclose(f) == 0);
        state = strrchr(line, ')')[2];
    }
}

struct receiver { int fd; atomic_int tid; };

// Receives, and counts how often that was interrupted.
static void *receive_always(void *arg) {
    struct receiver *r = arg;
    unsigned char out[16];
    ssize_t n;
    r->tid = syscall(SYS_gettid);
    while ((n = recv(r->fd, out, 16, 0)) == -1 && errno == EINTR) interrupted++;
    MUST(n == 16);
    return 0;
}

// A signal for the process, while several threads wait, interrupts the one that the kernel has picked, and no other.
static void bystanders(void) {
    unsigned char in[16] = { 0 };
    struct sigaction sa = { .sa_handler = nothing };
    sigset_t alarms;
    sigemptyset(&alarms), sigaddset(&alarms, SIGALRM);
    sigaction(SIGALRM, &sa, 0);
    for (int round = 0; round < 10; round++) {
        pthread_t p[3];
        struct receiver r[3] = { 0 };
        int t;
        interrupted = 0;
        for (int i = 0; i < 3; i++) { r[i].fd = cbc(&t); MUST(pthread_create(&p[i], 0, receive_always, &r[i]) == 0); }
        for (int i = 0; i < 3; i++) {
            while (!r[i].tid) sched_yield();
            until_it_sleeps(r[i].tid);
        }
        // The main thread takes none: one of the three is interrupted.
        MUST(pthread_sigmask(SIG_BLOCK, &alarms, 0) == 0 && kill(getpid(), SIGALRM) == 0);
        for (int i = 0; !interrupted && i < 10000; i++) usleep(1000);
        MUST(interrupted);
        // The main thread waits, too, and takes it.
        MUST(pthread_sigmask(SIG_UNBLOCK, &alarms, 0) == 0);
        int own = cbc(&t);
        // On a busy machine the first ones come before it waits.
        struct itimerval often = { { 0, 30000 }, { 0, 30000 } }, never = { 0 };
        MUST(setitimer(ITIMER_REAL, &often, 0) == 0 && recv(own, in, 16, 0) == -1 && errno == EINTR);
        MUST(setitimer(ITIMER_REAL, &never, 0) == 0);
        for (int i = 0; i < 3; i++) MUST(send_iv(r[i].fd, in, 16, 0) == 16);
        for (int i = 0; i < 3; i++) MUST(pthread_join(p[i], 0) == 0 && close(r[i].fd) == 0);
        MUST(interrupted == 1);
        close(own);
    }
}

static void *receive_once(void *arg) {
    struct receiver *r = arg;
    unsigned char out[16];
    r->tid = syscall(SYS_gettid);
    MUST(recv(r->fd, out, 16, 0) == 16);
    return 0;
}

// A process is stopped although one of its threads receives, which goes on afterwards; so is that thread by a tracer.
static void stops(void) {
    int told[2], go[2], s;
    pid_t tid;
    char word;
    alarm(60);
    MUST(pipe(told) == 0 && pipe(go) == 0);
    pid_t p = fork();
    if (!p) {
        unsigned char in[16] = { 0 };
        int t;
        struct receiver r = { .fd = cbc(&t) };
        pthread_t thread;
        MUST(pthread_create(&thread, 0, receive_once, &r) == 0);
        while (!(tid = r.tid)) sched_yield();
        until_it_sleeps(tid);
        MUST(close(go[1]) == 0 && write(told[1], &tid, sizeof tid) == sizeof tid && read(go[0], &word, 1) == 1);
        MUST(send_iv(r.fd, in, 16, 0) == 16 && pthread_join(thread, 0) == 0);
        _exit(0);
    }
    MUST(read(told[0], &tid, sizeof tid) == sizeof tid);
    for (int round = 0; round < 3; round++) {
        MUST(kill(p, SIGSTOP) == 0 && waitpid(p, &s, WUNTRACED) == p && WIFSTOPPED(s));
        MUST(kill(p, SIGCONT) == 0 && waitpid(p, &s, WCONTINUED) == p && WIFCONTINUED(s));
    }
    MUST(ptrace(PTRACE_SEIZE, tid, 0, 0) == 0 && ptrace(PTRACE_INTERRUPT, tid, 0, 0) == 0);
    MUST(waitpid(tid, &s, __WALL) == tid && WIFSTOPPED(s) && ptrace(PTRACE_DETACH, tid, 0, 0) == 0);
    MUST(write(go[1], "x", 1) == 1 && waitpid(p, &s, 0) == p && s == 0);
}

// A child that has given up root's ids, and what its session possesses.
static pid_t ordinary(void) {
    pid_t p = fork();
    if (p) return p;
    MUST(syscall(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, 0) > 0);
    MUST(setgroups(1, (gid_t[]){ 1234 }) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
    return 0;
}

// A key of root's is used by those who may find it (ALG_SET_KEY_BY_KEY_SERIAL).
static void keys(void) {
    int key = syscall(SYS_add_key, "user", "sealane-test", "k", 1, -4 /* KEY_SPEC_USER_KEYRING */);
    MUST(key > 0 && syscall(SYS_keyctl, 4 /* KEYCTL_CHOWN */, key, -1, 1234) == 0);
    struct { unsigned permissions; int found; } all[] = {
        { 0x3f010000, 0 }, { 0x3f3f0000, 0 }, { 0x3f010008, 1 }, { 0x3f010800, 1 }, { 0x3f010108, 0 }, { 0x3f0100f7, 0 },
    };
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++) {
        MUST(syscall(SYS_keyctl, 5 /* KEYCTL_SETPERM */, key, all[i].permissions & 0x3f3f3f3f) == 0);
        int h = tfm("hash", "hmac(sha256)");
        pid_t p = ordinary();
        if (!p) {
            int done = setsockopt(h, SOL_ALG, 7 /* ALG_SET_KEY_BY_KEY_SERIAL */, &key, sizeof key);
            if (all[i].found) { int o = op(h); MUST(done == 0 && send(o, "abc", 3, 0) == 3 && hash_is(o, MAC)); }
            else MUST(done == -1 && errno == EACCES);
            _exit(0);
        }
        end(p);
    }
    MUST(syscall(SYS_keyctl, 9 /* KEYCTL_UNLINK */, key, -4) == 0);
}

// Not as on Linux: a file whose text depends on its reader is read by the launcher only for who has the launcher's rights.
static void fewer_rights(void) {
    int o = op(tfm("hash", "sha256")), made_up = open("/proc/cpuinfo", O_RDONLY), file = open("/proc/self/exe", O_RDONLY);
    MUST(sendfile(o, made_up, 0, 16) == 16 && sendfile(o, file, 0, 16) == 16);
    pid_t p = ordinary();
    if (!p) {
        MUST(sendfile(o, made_up, 0, 16) == -1 && errno == EINVAL && sendfile(o, file, 0, 16) == 16);
        _exit(0);
    }
    end(p);
}

int main(int n, char **argv) {
    struct { const char *name; void (*run)(void); } all[] = {
        { "basic", basic }, { "dups", dups }, { "forks", forks }, { "threads", threads }, { "crowd", crowd },
        { "partings", partings }, { "closings", closings }, { "execs", execs }, { "signals", signals },
        { "blocking", blocking }, { "polls", polls }, { "close_all", close_all }, { "many", many },
        { "splices", splices }, { "full_pipe", full_pipe }, { "others_mistakes", others_mistakes }, { "beside", beside }, { "bystanders", bystanders },
        { "stops", stops }, { "keys", keys },
        { "fewer_rights", fewer_rights },
    };
    if (n > 2 && !strcmp(argv[1], "exec")) { execv(argv[0], (char *[]){ argv[0], argv[2], 0 }); return 1; }
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        if (n > 1 && !strcmp(argv[1], all[i].name)) { all[i].run(); return 0; }
    fprintf(stderr, "which?\n");
    return 2;
}
