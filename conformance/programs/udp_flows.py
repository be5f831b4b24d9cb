#!/usr/bin/env python3
"""Sends numbered datagrams of many flows, and checks that those of each flow arrive in order.

usage: udp_flows.py receive ADDRESS PORTS COUNT FILE
       udp_flows.py send FROM TO PORTS FLOWS COUNT FILE

Ports are 9001 and the next ones; flows take them in turns, and each has a port of its own to send from. COUNT datagrams are sent in
all, by two processes, in bunches. The receiver writes into FILE how many have come; the senders stay at most UNDER_WAY ahead of
that, so that no buffer overflows however late the receiver is scheduled. What has not come after ten seconds counts as lost. The
receiver ends when all have come, when none came for 30 seconds, or for two after the senders have written into FILE that they are
done. It prints how many came and how many came behind a later one of their flow.
"""
import mmap, os, select, socket, struct, sys, time

PORT = 9001
BUNCH = 96
UNDER_WAY = 1024
PATIENCE_S = 10


def counter(path, create):
    with open(path, "w+b" if create else "r+b") as f:
        if create:
            f.write(bytes(16))
            f.flush()
        return mmap.mmap(f.fileno(), 16)


def receive(address, ports, count, path):
    seen = counter(path, True)
    poll, sockets = select.poll(), {}
    for i in range(ports):
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        s.bind((address, PORT + i))
        s.setblocking(False)
        poll.register(s, select.POLLIN)
        sockets[s.fileno()] = s
    print("ready", flush=True)
    last, came, behind, silent = {}, 0, 0, 0
    while came < count:
        ready = poll.poll(1_000)
        silent = 0 if ready else silent + 1
        done = struct.unpack_from("=Q", seen, 8)[0]
        if silent >= (2 if done else 30):
            break
        for fd, _ in ready:
            try:
                while True:
                    data, flow = sockets[fd].recvfrom(2048)
                    number = struct.unpack_from("!I", data)[0]
                    behind += number < last.get(flow, 0)
                    last[flow] = max(number, last.get(flow, 0))
                    came += 1
            except BlockingIOError:
                pass
            struct.pack_into("=Q", seen, 0, came)
    print(f"came {came} behind {behind}", flush=True)


def send(source, to, ports, flows, count, path):
    processes, seen = 2, counter(path, False)
    for process in range(processes):
        if os.fork():
            continue
        mine = []
        for flow in range(process, flows, processes):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.bind((source, 10_000 + flow))
            s.connect((to, PORT + flow % ports))
            mine.append(s)
        sent = lost = 0
        while sent < count // processes:
            for i in range(BUNCH):
                mine[(sent + i) % len(mine)].send(struct.pack("!I", sent + i + 1) + bytes(60 + 8 * (i % 16)))
            sent += BUNCH
            # The other process has sent about as many.
            end = time.monotonic() + PATIENCE_S
            while (late := processes * sent - struct.unpack_from("=Q", seen)[0] - lost) > UNDER_WAY:
                if time.monotonic() > end:
                    lost += late
                time.sleep(0.001)
        os._exit(0)
    for _ in range(processes):
        os.wait()
    struct.pack_into("=Q", seen, 8, 1)


if sys.argv[1] == "receive":
    receive(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
else:
    send(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7]), sys.argv[7])
