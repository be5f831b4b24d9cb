#!/usr/bin/env python3
"""Makes system calls of one thread of a process fail, or the thread hang.

usage: inject.py PID THREAD ACTION [SYSCALL[,SYSCALL...] COUNT]

THREAD is the thread's name. ACTION is one of
    NAME      the name of an errno: the next COUNT of these calls are not made, and fail with it
    long      the next COUNT of these calls that have read or sent something say that it was 100000
    stop      the thread stops at the beginning of the next of these calls, for good
    freeze    the thread stops where it is, for good

It prints `injects` when it has begun, and `done N` after N calls, at the end of the thread, or when its standard input
ends. A thread that is stopped goes on when its tracer ends.
"""
import ctypes
import errno
import os
import platform
import sys
import threading

GETREGSET, SETREGSET, SEIZE, INTERRUPT, SYSCALL, DETACH = 0x4204, 0x4205, 0x4206, 0x4207, 24, 17
MCL_CURRENT = 1
GET_SYSCALL_INFO, TRACESYSGOOD, NT_PRSTATUS, NT_ARM_SYSTEM_CALL, WALL = 0x420E, 1, 1, 0x404, 0x40000000
# Numbers of calls; places of the call's number and of its result among the registers.
MACHINES = {
    "x86_64": (
        {"read": 0, "ppoll": 271, "poll": 7, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "openat": 257,
         "socket": 41, "recvmmsg": 299, "sendmmsg": 307, "writev": 20, "pwrite64": 18,
         "memfd_create": 319, "epoll_pwait": 281, "epoll_pwait2": 441},
        15, 10, 27,
    ),
    "aarch64": (
        {"read": 63, "ppoll": 73, "poll": 73, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "openat": 56,
         "socket": 198, "recvmmsg": 243, "sendmmsg": 269, "writev": 66, "pwrite64": 68,
         "memfd_create": 279, "epoll_pwait": 22, "epoll_pwait2": 441},
        8, 0, 34,
    ),
}
if platform.machine() not in MACHINES:
    sys.exit(f"inject.py: not made for {platform.machine()}")
NUMBERS, NUMBER_AT, RESULT_AT, REGISTERS = MACHINES[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def ptrace(request, at=None, data=None):
    r = libc.ptrace(request, tid, at, data)
    if r < 0:
        raise OSError(ctypes.get_errno(), f"ptrace {request:#x}")
    return r


def registers(request, values=None, kind=NT_PRSTATUS, count=REGISTERS):
    array = (ctypes.c_uint64 * count)(*(values or []))
    iov = Iovec(ctypes.addressof(array), ctypes.sizeof(array))
    ptrace(request, kind, ctypes.addressof(iov))
    return list(array)


def set_result(value):
    regs = registers(GETREGSET)
    regs[RESULT_AT] = value & (1 << 64) - 1
    registers(SETREGSET, regs)


def skip_call():
    if platform.machine() == "x86_64":
        regs = registers(GETREGSET)
        regs[NUMBER_AT] = (1 << 64) - 1
        registers(SETREGSET, regs)
        return
    word = ctypes.c_int(-1)
    iov = Iovec(ctypes.addressof(word), 4)
    ptrace(SETREGSET, NT_ARM_SYSTEM_CALL, ctypes.addressof(iov))


def info():
    """At the beginning of a call: 1 and its number. At its end: 2 and its result."""
    buf = (ctypes.c_uint64 * 12)()
    ptrace(GET_SYSCALL_INFO, ctypes.sizeof(buf), ctypes.addressof(buf))
    value = buf[3]
    return buf[0] & 0xFF, value - (1 << 64) if value >> 63 else value


def end(count):
    """Ends at once; the kernel lets the thread go on."""
    print(f"done {count}", flush=True)
    os._exit(0)


def until_told():
    sys.stdin.read()
    end(count)


def wait_for_end():
    """The thread's end has to be waited for, or its process could not be replaced."""
    while os.WIFSTOPPED(os.waitpid(tid, WALL)[1]):
        pass


def comm(thread):
    """The name of a thread; none of one that has ended meanwhile."""
    try:
        return open(f"/proc/{pid}/task/{thread}/comm").read().strip()
    except (FileNotFoundError, ProcessLookupError):
        return None


pid, name, action = int(sys.argv[1]), sys.argv[2], sys.argv[3]
calls = {NUMBERS[call] for call in sys.argv[4].split(",")} if len(sys.argv) > 4 else set()
most = int(sys.argv[5]) if len(sys.argv) > 5 else 1

try:
    # A tracer that gets no CPU lets the thread seem to hang: on a busy machine the daemon would start again.
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    pass
threads = [t for t in os.listdir(f"/proc/{pid}/task") if comm(t) == name]
if not threads:
    sys.exit(f"inject.py: {pid} has no thread {name}")
tid = int(min(threads, key=int))
count, inside, signal = 0, None, 0
# All that takes time or memory comes before the thread is stopped for the first time.
threading.Thread(target=until_told, daemon=True).start()
libc.mlockall(MCL_CURRENT)
ptrace(SEIZE, None, TRACESYSGOOD)
ptrace(INTERRUPT)
try:
    os.waitpid(tid, WALL)
    print("injects", flush=True)
    if action == "freeze":
        count = 1
        wait_for_end()
        end(count)
    while True:
        ptrace(SYSCALL, None, signal)
        signal = 0
        _, status = os.waitpid(tid, WALL)
        if not os.WIFSTOPPED(status):
            end(count)
        stop = os.WSTOPSIG(status)
        if stop != 5 | 0x80:
            # A signal is passed on, other events are not.
            signal = 0 if status >> 16 or stop == 5 else stop
            continue
        kind, value = info()
        if kind == 1:
            inside = value if value in calls else None
            if inside is not None and action == "stop":
                count = 1
                wait_for_end()
                end(count)
            if inside is not None and action != "long":
                skip_call()
        elif kind == 2 and inside is not None:
            if action == "long":
                if value > (0 if inside == NUMBERS["sendmmsg"] else 8):
                    set_result(100000)
                    count += 1
            else:
                set_result(-getattr(errno, action))
                count += 1
            inside = None
            if count >= most:
                ptrace(DETACH)
                end(count)
except (ProcessLookupError, ChildProcessError):
    end(count)
