// Stands for a dynamic loader that is not glibc's, such as musl's: it takes the words of LD_PRELOAD for paths as they are, passes
// over those that are not there, and ends its program if there is a library that it cannot load. It is the interpreter of a
// program (PT_INTERP) whose work it does, too: the digest of "abc" by AF_ALG, without any library.
#include <linux/if_alg.h>
#include <sys/syscall.h>

#ifdef __x86_64__
__asm__(".globl _start\n_start: mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
static long call(long n, long a, long b, long c) {
    long r;
    __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return r;
}
#else
__asm__(".globl _start\n_start: mov x0, sp\n bl begin\n");
static long call(long n, long a, long b, long c) {
    register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
}
#endif

static void end(int status, const char *text, long len) {
    call(SYS_write, status ? 2 : 1, (long)text, len);
    for (;;) call(SYS_exit_group, status, 0, 0);
}

static void load(const char *word) {
    const char failed[] = "Error relocating the library\n";
    if (*word && call(SYS_openat, -100, (long)word, 0) >= 0) end(127, failed, sizeof failed - 1);
}

__attribute__((used, visibility("hidden"))) void begin(long *stack) {
    for (char **env = (char **)stack + stack[0] + 2; *env; env++) {
        const char *name = "LD_PRELOAD=";
        char *value = *env;
        while (*name && *value == *name) name++, value++;
        if (*name) continue;
        for (char *word = value, *at = value;; at++) {
            char c = *at;
            if (c && c != ':' && c != ' ') continue;
            *at = 0;
            load(word);
            *at = c;
            word = at + 1;
            if (!c) break;
        }
    }
    struct sockaddr_alg sa = { .salg_family = 38, .salg_type = "hash", .salg_name = "sha256" };
    unsigned char digest[32];
    char text[65];
    long tfm = call(SYS_socket, 38, 5, 0), op;
    if (tfm < 0) end(-tfm, "no AF_ALG\n", 10);
    call(SYS_bind, tfm, (long)&sa, sizeof sa);
    op = call(SYS_accept, tfm, 0, 0);
    call(SYS_write, op, (long)"abc", 3);
    if (call(SYS_read, op, (long)digest, 32) != 32) end(1, "no digest\n", 10);
    for (int i = 0; i < 64; i++) text[i] = "0123456789abcdef"[digest[i / 2] >> (i % 2 ? 0 : 4) & 15];
    text[64] = '\n';
    end(0, text, 65);
}
