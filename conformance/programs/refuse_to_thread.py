#!/usr/bin/env python3
"""Runs a program one of whose threads may not set options of packet sockets: there setsockopt fails with EPERM. Nothing else
of the program waits for anybody, as it would for a tracer.

usage: refuse_to_thread.py THREAD PROGRAM [ARGUMENT...]

THREAD is the thread's name. Prints `refused` for each call that fails."""
import errno
import platform
import sys

from seccomp_filter import ALLOW, ARGUMENTS, EQUAL, LOAD, NUMBER, RETURN, USER_NOTIF, run

SETSOCKOPT = {"x86_64": 54, "aarch64": 208}[platform.machine()]
SOL_PACKET = 263
name = sys.argv[1]


def answer(thread):
    try:
        if open(f"/proc/{thread}/comm").read().strip() != name:
            return 0
    except (FileNotFoundError, ProcessLookupError):
        return 0
    print("refused", flush=True)
    return errno.EPERM


run(
    [
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 3, SETSOCKOPT),
        # The second argument, of which the lower half comes first.
        (LOAD, 0, 0, ARGUMENTS + 8),
        (EQUAL, 0, 1, SOL_PACKET),
        (RETURN, 0, 0, USER_NOTIF),
        (RETURN, 0, 0, ALLOW),
    ],
    sys.argv[2:],
    answer,
)
