#!/usr/bin/env python3
"""Sends and counts UDP datagrams to port 4444, by which tests see what passes unprotected.

usage: never.py wire DEVICE      counts those that arrive at a device, and packets of ESP; fragments count, too
       never.py listen           counts those that reach a program
       never.py send COUNT SIZE FLOWS
       never.py stream FLOWS             sends all the time until its standard input ends, now and then in fragments
       never.py forget                   makes connection tracking forget all connections, as `conntrack -F` does
       never.py marked COUNT FROM TO MARK...     sends with each of these packet marks
       never.py container COUNT FROM TO MARK...  the same, as a user whose only privilege is CAP_NET_RAW
       never.py connect TO PORT MARK...          tries to connect by TCP with each of these marks, as the same user
       never.py exempt COUNT FROM TO FILE        sends from a socket that no policy covers (IP_XFRM_POLICY), whenever the
                                                 number in a file has changed, until it is 0

FLOWS are FROM TO... [and FROM TO...]...

`wire` and `listen` print `watching`, count until their standard input ends, and print `clear N esp M` or `got N`. Sending goes on
where the kernel refuses: only what leaves counts.
"""
import errno, os, select, socket, struct, sys, time

PORT = 4444
ETH_P_ALL, PACKET_OUTGOING = 3, 4
UDP, ESP, FRAGMENT = 17, 50, 44


def protocol(frame):
    """The protocol of an IP packet, and whether it is a datagram to the port, or a later fragment of one."""
    kind, packet = frame[12:14], frame[14:]
    if kind == b"\x08\x00":
        upper = (packet[0] & 15) * 4
        later, proto = (packet[6] & 0x1f) << 8 | packet[7], packet[9]
    elif kind == b"\x86\xdd":
        proto, upper, later = packet[6], 40, 0
        if proto == FRAGMENT:
            proto, later, upper = packet[40], (packet[42] << 8 | packet[43]) & 0xfff8, 48
    else:
        return None, False
    to = int.from_bytes(packet[upper + 2:upper + 4], "big")
    return proto, proto == UDP and (later > 0 or to == PORT)


def wire(device):
    # Bound to no device: it may be deleted and made again.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    clear = esp = 0
    print("watching", flush=True)
    while True:
        ready, _, _ = select.select([sock, sys.stdin], [], [])
        if sock in ready:
            frame, address = sock.recvfrom(65536)
            if address[0] == device and address[2] != PACKET_OUTGOING:
                proto, ours = protocol(frame)
                clear, esp = clear + ours, esp + (proto == ESP)
        elif not sys.stdin.read(1):
            return print(f"clear {clear} esp {esp}")


def listen():
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::", PORT))
    got = 0
    print("watching", flush=True)
    while True:
        ready, _, _ = select.select([sock, sys.stdin], [], [])
        if sock in ready:
            sock.recv(65536)
            got += 1
        elif not sys.stdin.read(1):
            return print(f"got {got}")


def open_socket(source, to):
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.bind((source if (":" in source) == (":" in to) else "", 0))
    return sock


def send_from(sock, count, size, to):
    for _ in range(count):
        try:
            sock.sendto(bytes(size), (to, PORT))
        except OSError:
            pass


def flows(words):
    """Pairs of a source and a destination."""
    for group in " ".join(words).split(" and "):
        source, *destinations = group.split()
        yield from ((source, to) for to in destinations)


def send(count, size, pairs):
    for source, to in pairs:
        send_from(open_socket(source, to), count, size, to)


def stream(pairs):
    socks = {}
    turn = 0
    print("sending", flush=True)
    while not select.select([sys.stdin], [], [], 0.005)[0] or sys.stdin.read(1):
        turn += 1
        for source, to in pairs:
            try:
                # Its address may be gone for a while.
                socks[to] = socks.get(to) or open_socket(source, to)
                send_from(socks[to], 1, 4000 if turn % 20 == 0 else 100, to)
            except OSError:
                pass


def forget():
    NETLINK_NETFILTER, CT_DELETE, REQUEST_ACK = 12, 1 << 8 | 2, 5
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER)
    sock.send(struct.pack("=IHHIIBBH", 20, CT_DELETE, REQUEST_ACK, 1, 0, 0, 0, 0))
    error, = struct.unpack_from("=i", sock.recv(4096), 16)
    if error == -errno.EINVAL:
        sys.exit("this kernel has no ctnetlink")
    assert error == 0, os.strerror(-error)


def marked(count, source, to, marks):
    for mark in marks:
        sock = open_socket(source, to)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, struct.pack("=I", mark))
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_MARK) & 0xffffffff == mark
        send_from(sock, count, 100, to)


def connect(to, port, marks):
    for mark in marks:
        with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, struct.pack("=I", mark))
            sock.settimeout(0.5)
            try:
                sock.connect((to, port))
            except OSError:
                pass


def become_container():
    import ctypes  # takes as long as all the others
    PR_SET_KEEPCAPS, VERSION, CAP_NET_RAW = 8, 0x20080522, 1 << 13
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    data = (ctypes.c_uint32 * 6)(CAP_NET_RAW, CAP_NET_RAW, 0, 0, 0, 0)
    assert libc.capset((ctypes.c_uint32 * 2)(VERSION, 0), data) == 0


def exempt(count, source, to, path):
    IP_XFRM_POLICY, IPV6_XFRM_POLICY, XFRM_POLICY_OUT = 17, 35, 1
    policy = bytearray(168)  # struct xfrm_userpolicy_info of linux/xfrm.h: all traffic, allowed
    policy[160] = XFRM_POLICY_OUT
    sock = open_socket(source, to)
    option = (socket.IPPROTO_IPV6, IPV6_XFRM_POLICY) if ":" in to else (socket.IPPROTO_IP, IP_XFRM_POLICY)
    sock.setsockopt(*option, bytes(policy))
    print("ready", flush=True)
    before = ""
    while before != "0":
        now = open(path).read().strip()
        if now not in ("", "0", before):
            send_from(sock, count, 100, to)
            print(f"sent {now}.", flush=True)
        before = now or before
        time.sleep(0.02)


what, *rest = sys.argv[1:]
if what == "send":
    send(int(rest[0]), int(rest[1]), flows(rest[2:]))
elif what == "stream":
    stream(list(flows(rest)))
elif what == "forget":
    forget()
elif what in ("marked", "container"):
    if what == "container":
        become_container()
    marked(int(rest[0]), rest[1], rest[2], [int(mark, 0) for mark in rest[3:]])
elif what == "connect":
    become_container()
    connect(rest[0], int(rest[1]), [int(mark, 0) for mark in rest[2:]])
elif what == "exempt":
    exempt(int(rest[0]), *rest[1:])
elif what == "wire":
    wire(rest[0])
else:
    listen()
