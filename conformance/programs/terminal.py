#!/usr/bin/env python3
"""Runs a command on a terminal of its own, and does there what it reads.

    terminal.py COMMAND...    writes what the command writes. Reads lines: `resize`, `suspend` (Ctrl-Z), `hangup` (the window is
                              closed). After each it writes `done: WORD`. Ends with the command, and its status.
"""
import fcntl
import os
import pty
import select
import struct
import sys
import termios

pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
lines, sources = 20, [0, terminal]
while sources:
    for source in select.select(sources, [], [])[0]:
        try:
            text = os.read(source, 4096)
        except OSError:
            text = b""
        if not text:
            sources.remove(source)
        elif source == terminal:
            os.write(1, text)
        else:
            for word in text.decode().split():
                if word == "resize":
                    lines += 1
                    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
                elif word == "suspend":
                    os.write(terminal, b"\x1a")
                elif word == "hangup":
                    sources.remove(terminal)
                    os.close(terminal)
                os.write(1, f"done: {word}\n".encode())
    if terminal not in sources and 0 not in sources:
        break
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF)
