#!/usr/bin/env python3
"""A session without TCP-AO on loopback, for some seconds; its segments are captured.

    plain_session.py CAPTURE SECONDS

Exits with 1 when the session breaks."""
import socket
import struct
import sys
import threading
import time

done = False
frames = []


def capture():
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.bind(("lo", 3))
    sock.settimeout(0.1)
    ready.set()
    while not done:
        try:
            frame, where = sock.recvfrom(65535)
        except TimeoutError:
            continue
        if where[2] == socket.PACKET_OUTGOING:
            frames.append((time.time_ns(), frame))


ready = threading.Event()
thread = threading.Thread(target=capture)
thread.start()
ready.wait()
listener = socket.create_server(("127.0.0.2", 1790))
client = socket.create_connection(("127.0.0.2", 1790), timeout=3, source_address=("127.0.0.1", 0))
server, _ = listener.accept()
server.settimeout(3)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    client.sendall(b"question")
    assert server.recv(100) == b"question"
    server.sendall(b"answer")
    assert client.recv(100) == b"answer"
    time.sleep(0.02)
client.close()
server.close()
time.sleep(0.2)
done = True
thread.join()
with open(sys.argv[1], "wb") as f:
    f.write(struct.pack("=IHHIIII", 0xa1b23c4d, 2, 4, 0, 0, 262144, 1))
    for ns, frame in frames:
        f.write(struct.pack("=IIII", ns // 10**9, ns % 10**9, len(frame), len(frame)) + frame)
