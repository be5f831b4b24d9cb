#!/usr/bin/env python3
"""Runs a program to which the kernel gives no seccomp filter, as in containers that forbid it.

usage: no_seccomp.py PROGRAM [ARGUMENT...]"""
import errno
import sys

from seccomp_filter import ALLOW, EQUAL, ERRNO, LOAD, NUMBER, RETURN, SECCOMP, run

run(
    [
        (LOAD, 0, 0, NUMBER),
        (EQUAL, 0, 1, SECCOMP),
        (RETURN, 0, 0, ERRNO | errno.EPERM),
        (RETURN, 0, 0, ALLOW),
    ],
    sys.argv[1:],
)
