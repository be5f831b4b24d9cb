"""A seccomp filter for a program that is run next."""
import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
# Instructions of classic BPF, and what a filter returns.
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
KILL_PROCESS, ERRNO, USER_NOTIF, ALLOW = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000
# Offsets in struct seccomp_data.
NUMBER, ARGUMENTS = 0, 16
SECCOMP = {"x86_64": 317, "aarch64": 277}[platform.machine()]
SET_MODE_FILTER, NEW_LISTENER = 1, 8
# struct seccomp_notif is 80 bytes: a cookie, the thread that calls, flags, struct seccomp_data; its answer is 24.
RECV, SEND, CONTINUE = 0xC0502100, 0xC0182101, 1


def run(instructions, argv, answer=None):
    """Becomes a program under a filter of such instructions: code, jumps if true and if false, value. Calls of which the filter
    notifies fail with what `answer` says of the thread that makes them, the number of an error; with none they are made."""
    code = b"".join(struct.pack("=HBBI", *one) for one in instructions)
    memory = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if answer is not None:
        ours, theirs = socket.socketpair()
        # The program is this process, for whoever has started it.
        if os.fork() == 0:
            theirs.close()
            serve(socket.recv_fds(ours, 1, 1)[1][0], answer)
        listener = libc.syscall(SECCOMP, SET_MODE_FILTER, NEW_LISTENER, program)
        if listener < 0:
            sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
        socket.send_fds(theirs, [b"\0"], [listener])
        os.close(listener)
    elif libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(argv[0], argv)


def serve(listener, answer):
    """Answers the notifications of a listener until nobody is left under its filter."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while not poll.poll()[0][1] & select.POLLHUP:
        notification = bytearray(80)
        try:
            fcntl.ioctl(listener, RECV, notification)
            cookie, thread = struct.unpack_from("=QI", notification)
            error = answer(thread)
            fcntl.ioctl(listener, SEND, struct.pack("=QqiI", cookie, 0, -error, 0 if error else CONTINUE))
        except FileNotFoundError:
            pass  # The call was interrupted.
    os._exit(0)
