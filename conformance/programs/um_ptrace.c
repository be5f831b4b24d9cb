// Preloaded into user-mode Linux before 6.13 on CPUs with AMX. Those kernels save and restore the vector registers of
// their programs in a buffer of fixed size, without room for AMX's tiles. The host's PTRACE_SETREGSET takes the whole set
// or nothing (EFAULT, "ptrace set fp regs failed"), and the guest's init is killed. The set is completed here: the
// registers that the guest knows, and the others as they are. Programs of the guest cannot use tiles, which need a
// request (ARCH_REQ_XCOMP_PERM) that these kernels do not know.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*ptrace_fn)(enum __ptrace_request, pid_t, void *, void *);

long ptrace(enum __ptrace_request request, ...) {
  static ptrace_fn real;
  static char registers[65536] __attribute__((aligned(64)));
  va_list arguments;
  va_start(arguments, request);
  pid_t pid = va_arg(arguments, pid_t);
  void *addr = va_arg(arguments, void *);
  void *data = va_arg(arguments, void *);
  va_end(arguments);
  if (!real) real = (ptrace_fn)dlsym(RTLD_NEXT, "ptrace");
  if (request == PTRACE_SETREGSET && addr == (void *)NT_X86_XSTATE) {
    const struct iovec *given = data;
    struct iovec whole = {registers, sizeof registers};
    if (real(PTRACE_GETREGSET, pid, addr, &whole) == 0 && given->iov_len < whole.iov_len) {
      memcpy(registers, given->iov_base, given->iov_len);
      return real(request, pid, addr, &whole);
    }
  }
  return real(request, pid, addr, data);
}
