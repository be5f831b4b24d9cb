// Preloaded into user-mode Linux before 6.14 on CPUs with AMX (conformance/boot).
//
// These kernels keep the vector registers of their processes in a buffer of fixed length (`struct _xstate`). This machine's
// kernel takes registers back only all at once (`xstateregs_set`, arch/x86/kernel/fpu/regset.c), which is more with AMX, and
// the user-mode kernel ends with its first process. What its buffer lacks stays as it is here; no process of it uses AMX.
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

// The C library's ptrace().
long ptrace(enum __ptrace_request request, ...) {
  va_list arguments;
  va_start(arguments, request);
  pid_t pid = va_arg(arguments, pid_t);
  void *address = va_arg(arguments, void *);
  void *data = va_arg(arguments, void *);
  va_end(arguments);
  if (request == PTRACE_SETREGSET && (long)address == NT_X86_XSTATE) {
    static char registers[65536] __attribute__((aligned(64)));
    const struct iovec *set = data;
    struct iovec all = {registers, sizeof registers};
    if (syscall(SYS_ptrace, PTRACE_GETREGSET, pid, address, &all) == 0 && set->iov_len < all.iov_len) {
      memcpy(registers, set->iov_base, set->iov_len);
      return syscall(SYS_ptrace, request, pid, address, &all);
    }
  }
  if (request < PTRACE_PEEKTEXT || request > PTRACE_PEEKUSER)
    return syscall(SYS_ptrace, request, pid, address, data);
  // The system call writes the word, the C library's function returns it.
  long word;
  if (syscall(SYS_ptrace, request, pid, address, &word) < 0)
    return -1;
  errno = 0;
  return word;
}
