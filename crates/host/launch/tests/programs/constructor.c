// A library whose constructor waits for a thread of the program that loads it, which makes calls of the kinds that the preloaded
// library serves: the dynamic loader's lock is held meanwhile. Compiled once as the library, and once as the program.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef LIBRARY
extern void (*while_loading)(void);
__attribute__((constructor)) static void load(void) { while_loading(); }
#else
static int loading[2], done[2];

// Each of these is the first call of its kind in this process.
static void *calls(void *arg) {
    char byte;
    struct iovec piece = { &byte, 1 };
    struct pollfd none = { -1, 0, 0 };
    read(loading[0], &byte, 1);
    preadv2(-1, &piece, 1, 0, 0);
    poll(&none, 1, 0);
    sendfile(-1, -1, 0, 1);
    recv(-1, &byte, 1, 0);
    dup(-1);
    write(done[1], "x", 1);
    return arg;
}

void (*while_loading)(void);

static void wait_for_thread(void) {
    char byte;
    write(loading[1], "x", 1);
    if (read(done[0], &byte, 1) == 1) puts("done");
}

int main(int n, char **argv) {
    pthread_t thread;
    while_loading = wait_for_thread;
    if (n != 2 || pipe(loading) || pipe(done) || pthread_create(&thread, 0, calls, 0)) return 2;
    // Whoever waits for ever is ended.
    alarm(60);
    if (!dlopen(argv[1], RTLD_NOW)) { puts(dlerror()); return 1; }
    return pthread_join(thread, 0);
}
#endif
