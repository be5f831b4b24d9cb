#!/usr/bin/env python3
"""Asks the daemon by both of its ports, with rights and in different ways without; prints the outcome of each. Needs root."""
import ctypes
import os
import socket
import struct

PORT = 0x58460001
USERSOCK, GENERIC = 2, 16
CLONE_NEWUSER = 0x10000000
libc = ctypes.CDLL(None, use_errno=True)


def question():
    """XFRM_MSG_GETSADINFO, which the kernel answers only for CAP_NET_ADMIN."""
    return struct.pack("=IHHIII", 20, 0x23, 1, 7, 0, 0)


def ask(guarded, answers):
    """Sends the question to one of the ports, and returns the kind of the answer."""
    port = answers.getsockname()[0]
    try:
        if guarded:
            guarded.sendto(struct.pack("=IHHII", 36, 0xFF10, 1, 0, port) + question(), (PORT, 0))
        else:
            answers.sendto(question(), (PORT, 0))
    except OSError as error:
        return f"the kernel refuses: {os.strerror(error.errno)}"
    answer = answers.recv(4096)
    kind, code = struct.unpack_from("=4xH10xi", answer)
    return f"the daemon refuses: {os.strerror(-code)}" if kind == 2 else f"answered {kind:#x}"


def sockets():
    answers = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, USERSOCK)
    answers.bind((0, 0))
    answers.settimeout(20)
    return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC), answers


def report(who, guarded, answers):
    print(f"{who}, guarded: {ask(guarded, answers)}")
    print(f"{who}, open: {ask(None, answers)}", flush=True)


def in_child(who, become, made=None):
    pid = os.fork()
    if pid == 0:
        become()
        report(who, *(made or sockets()))
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0, who


def user_namespace():
    """All capabilities, over a user namespace that does not own the network namespace."""
    assert libc.unshare(CLONE_NEWUSER) == 0, os.strerror(ctypes.get_errno())


report("root", *sockets())
in_child("nobody", lambda: os.setuid(65534))
in_child("nobody with root's sockets", lambda: os.setuid(65534), sockets())
in_child("root of another user namespace", user_namespace)

# What nobody has connected, root could be made to write to.
pid = os.fork()
if pid == 0:
    os.setuid(65534)
    guarded = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, GENERIC)
    try:
        guarded.connect((PORT, 0))
        print("nobody connected to the guarded port")
    except PermissionError:
        print("nobody connects to the guarded port: refused", flush=True)
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
