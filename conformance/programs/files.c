// Looks at the files of its arguments in every way, reads them, and with a value (`PATH=VALUE`) writes that and reads it
// again. Prints what it gets; the same on a kernel and under `sealane run`.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void told(const char *call, long r, unsigned mode, long long size) {
  if (r < 0)
    printf("%s: %s\n", call, strerrorname_np(errno));
  else
    printf("%s: mode %o, %lld bytes\n", call, mode, size);
}

static void look(const char *path) {
  struct stat s;
  struct statx x;
  long r = fstatat(AT_FDCWD, path, &s, 0);
  told("fstatat", r, s.st_mode, s.st_size);
  r = fstatat(AT_FDCWD, path, &s, AT_SYMLINK_NOFOLLOW);
  told("fstatat of no link", r, s.st_mode, s.st_size);
#ifdef SYS_stat
  r = syscall(SYS_stat, path, &s);
  told("stat", r, s.st_mode, s.st_size);
  r = syscall(SYS_lstat, path, &s);
  told("lstat", r, s.st_mode, s.st_size);
#endif
  r = statx(AT_FDCWD, path, 0, STATX_BASIC_STATS, &x);
  told("statx", r, x.stx_mode, x.stx_size);
  r = statx(AT_FDCWD, path, 1, STATX_BASIC_STATS, &x);
  told("statx with a flag that is none", r, 0, 0);
  for (int mode = 0; mode <= 8; mode++) {
    errno = 0;
    r = access(path, mode);
    printf("access %d: %ld %s", mode, r, strerrorname_np(errno));
    errno = 0;
    r = faccessat(AT_FDCWD, path, mode, AT_EACCESS);
    printf(", as its effective user %ld %s\n", r, strerrorname_np(errno));
  }
}

static void show(const char *path, int flags) {
  char text[8192];
  int fd = open(path, flags);
  if (fd < 0) {
    printf("open with %o: %s\n", flags, strerrorname_np(errno));
    return;
  }
  ssize_t n = read(fd, text, sizeof text);
  printf("descriptor %d, close-on-exec %d: %.*s", fd, fcntl(fd, F_GETFD), (int)n, text);
  n = read(fd, text, sizeof text);
  printf("then %zd bytes\n", n);
  close(fd);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    char *value = strchr(argv[i], '=');
    if (value) *value++ = 0;
    printf("== %s\n", argv[i]);
    look(argv[i]);
    show(argv[i], O_RDONLY);
    show(argv[i], O_RDONLY | O_CLOEXEC);
    show(argv[i], O_RDONLY | O_DIRECTORY);
    if (!value) continue;
    // As a shell does it, without O_TRUNC in the second round.
    for (int flags = O_WRONLY | O_CREAT | O_TRUNC; flags; flags = flags == O_WRONLY ? 0 : O_WRONLY) {
      int fd = open(argv[i], flags, 0666), other = 20;
      if (fd < 0 || dup2(fd, other) < 0) {
        printf("open to write with %o: %s\n", flags, strerrorname_np(errno));
        continue;
      }
      close(fd);
      long n = write(other, value, strlen(value));
      printf("%ld written, close %d\n", n, close(other));
      show(argv[i], O_RDONLY);
      show(argv[i], O_RDWR);
      value = "7\n";
    }
  }
  return 0;
}
