#!/usr/bin/env python3
"""Numbered datagrams of many flows, and whether those of each arrive in their order.

usage: udp_flows.py receive ADDRESS PORTS COUNT
       udp_flows.py send FROM TO PORTS FLOWS COUNT

Ports are 9001 and the next ones; flows take them in turns, and each has a port of its own to send from. COUNT datagrams are sent in
all, by two processes, in bunches with a pause between them. The receiver ends when none has come for a second, and prints how
many came and how many came behind a later one of their flow.
"""
import os, select, socket, struct, sys, time

PORT = 9001
BUNCH = 96


def receive(address, ports, count):
    poll, sockets = select.poll(), {}
    for i in range(ports):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        s.bind((address, PORT + i))
        s.setblocking(False)
        poll.register(s, select.POLLIN)
        sockets[s.fileno()] = s
    print("ready", flush=True)
    last, came, behind, timeout = {}, 0, 0, 30_000
    while came < count:
        ready = poll.poll(timeout)
        if not ready:
            break
        for fd, _ in ready:
            try:
                while True:
                    data, flow = sockets[fd].recvfrom(2048)
                    number = struct.unpack_from("!I", data)[0]
                    behind += number < last.get(flow, 0)
                    last[flow] = max(number, last.get(flow, 0))
                    came, timeout = came + 1, 1000
            except BlockingIOError:
                pass
    print(f"came {came} behind {behind}", flush=True)


def send(source, to, ports, flows, count):
    processes = 2
    for process in range(processes):
        if os.fork():
            continue
        mine = []
        for flow in range(process, flows, processes):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((source, 10_000 + flow))
            s.connect((to, PORT + flow % ports))
            mine.append(s)
        sent = 0
        while sent < count // processes:
            for i in range(BUNCH):
                mine[(sent + i) % len(mine)].send(struct.pack("!I", sent + i + 1) + bytes(60 + 8 * (i % 16)))
            sent += BUNCH
            time.sleep(0.002)
        os._exit(0)
    for _ in range(processes):
        os.wait()


if sys.argv[1] == "receive":
    receive(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    send(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7]))
