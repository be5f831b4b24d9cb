#!/usr/bin/env python3
"""Runs a program that the kernel kills when it loads a module, or opens a socket that might load one.

Sockets of AF_UNIX, AF_INET and NETLINK_USERSOCK are parts of every kernel; no others are let pass.

usage: only_looks.py PROGRAM [ARGUMENT...]"""
import ctypes
import os
import platform
import socket
import struct
import sys

PR_SET_SECCOMP, SECCOMP_MODE_FILTER, PR_SET_NO_NEW_PRIVS = 22, 2, 38
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
SOCKET, INIT_MODULE, FINIT_MODULE = {"x86_64": (41, 175, 313), "aarch64": (198, 105, 273)}[platform.machine()]
NETLINK_USERSOCK = 2
# Offsets in struct seccomp_data.
NUMBER, FAMILY, PROTOCOL = 0, 16, 32


def main():
    code = b"".join(
        struct.pack("=HBBI", *one)
        for one in [
            (LOAD, 0, 0, NUMBER),
            (EQUAL, 3, 0, SOCKET),
            (EQUAL, 8, 0, INIT_MODULE),
            (EQUAL, 7, 0, FINIT_MODULE),
            (RETURN, 0, 0, ALLOW),
            (LOAD, 0, 0, FAMILY),
            (EQUAL, 5, 0, socket.AF_UNIX),
            (EQUAL, 4, 0, socket.AF_INET),
            (EQUAL, 0, 2, socket.AF_NETLINK),
            (LOAD, 0, 0, PROTOCOL),
            (EQUAL, 1, 0, NETLINK_USERSOCK),
            (RETURN, 0, 0, KILL_PROCESS),
            (RETURN, 0, 0, ALLOW),
        ]
    )
    memory = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in [(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0)]:
        if libc.prctl(*words) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    os.execvp(sys.argv[1], sys.argv[1:])


main()
