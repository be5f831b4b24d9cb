#!/usr/bin/env python3
"""Runs a program that the kernel kills when it loads a module, or opens a socket that might load one.

Sockets of AF_UNIX, AF_INET and NETLINK_USERSOCK are parts of every kernel; no others are let pass.

usage: only_looks.py PROGRAM [ARGUMENT...]"""
import platform
import socket
import sys

from seccomp_filter import ALLOW, ARGUMENTS, EQUAL, KILL_PROCESS, LOAD, NUMBER, RETURN, run

SOCKET, INIT_MODULE, FINIT_MODULE = {"x86_64": (41, 175, 313), "aarch64": (198, 105, 273)}[platform.machine()]
NETLINK_USERSOCK = 2
FAMILY, PROTOCOL = ARGUMENTS, ARGUMENTS + 16

run(
    [
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
    ],
    sys.argv[1:],
)
