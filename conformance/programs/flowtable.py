#!/usr/bin/env python3
"""Whether a policy is in force for a flow that a flowtable has taken over.

usage: flowtable.py CLIENT GATEWAY REMOTE      see three_spaces.py

A client and a remote host exchange datagrams, which a flowtable of the gateway takes over. Then policies for them come at both
ends. Prints for each family what the gateway sends in clear after that, and whether answers come. Then the remote host asks, and the
client does not answer before the gateway has seen many questions. Then rules of the gateway replace all marks behind mangle's, and
another flow begins.
"""
import re, socket, sys, threading, time
from three_spaces import FAMILY, Net, address, key_manager, leaving, policies, prefix, state

TABLE = """table inet others {
flowtable flows { hook ingress priority 0; devices = { "lan", "wire" }; }
counter seen4 { }
counter seen6 { }
chain forward {
type filter hook forward priority 0
meta nfproto ipv4 counter name seen4
meta nfproto ipv6 counter name seen6
meta l4proto udp flow add @flows
}
}
"""
MARKS = """table inet marks {
chain prerouting {
type filter hook prerouting priority -50
meta mark set 9
}
}
"""
PORT = 7000
QUESTION = b"never in clear"
PATIENCE_S = 30
COUNT = 50
UNANSWERED = 5


def protection(version, end):
    """The commands for states and policies of an end."""
    near, far = prefix(version, "lan"), prefix(version, "remote")
    return "".join(state(version, way) + policies(version, way, end, near, far) for way in (0, 1))


class Flow:
    """Datagrams there and back, until the end of the program. The one who answers leaves the first ones unanswered."""

    def __init__(self, net, version, client=("c", "lan.2"), server=("r", "remote.1"), port=PORT, unanswered=0):
        self.questions = self.answers = 0
        (place, name), (there, name_there) = server, client
        server, self.client = [net.socket(at, FAMILY[version], socket.SOCK_DGRAM) for at in (place, there)]
        server.bind((address(version, name), port))
        self.client.bind((address(version, name_there), port))
        self.client.connect((address(version, name), port))
        self.client.settimeout(0.2)
        for run in (lambda: self.serve(server, unanswered), self.ask):
            threading.Thread(target=run, daemon=True).start()

    def serve(self, s, unanswered):
        for _ in range(unanswered):
            s.recvfrom(2048)
        while True:
            data, peer = s.recvfrom(2048)
            s.sendto(data, peer)

    def ask(self):
        while True:
            self.client.send(QUESTION)
            self.questions += 1
            try:
                self.client.recv(2048)
                self.answers += 1
            except OSError:
                pass
            time.sleep(0.01)

    def more(self, count):
        """Waits for more answers. Returns whether they have come."""
        begun, enough = time.monotonic(), self.answers + count
        while self.answers < enough and time.monotonic() - begun < PATIENCE_S:
            time.sleep(0.05)
        return self.answers >= enough


def clear(s):
    """The datagrams of the flow that a packet socket has seen leave since the last time."""
    return sum(QUESTION in frame for frame, _ in leaving(s))


def forwarded(net, version):
    """The packets that the gateway's rules have seen so far."""
    return re.search(r"packets (\d+)", net.inside("g", "nft", "list", "counter", "inet", "others", f"seen{version}"))[1]


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    net.inside("g", "nft", "-f", "-", text=TABLE)
    with key_manager(net) as run:
        for version in (4, 6):
            flow, wire = Flow(net, version), net.watch("g", "wire")
            begun, seen = time.monotonic(), None
            while seen != (seen := forwarded(net, version)):
                if not flow.more(COUNT) or time.monotonic() - begun > PATIENCE_S:
                    sys.exit("the flowtable does not take the flow over")
            before = clear(wire)
            run("r", protection(version, 1))
            run("g", protection(version, 0))
            # What was on its way when the command ended: the second answer is to a later question.
            flow.more(2)
            clear(wire)
            answered = flow.more(COUNT)
            print(f"IPv{version}: in clear before: {before > COUNT}, after: {clear(wire)}, answers: {answered}", flush=True)
            from_there = Flow(net, version, ("r", "remote.1"), ("c", "lan.2"), PORT + 1, UNANSWERED)
            answered = from_there.more(COUNT)
            print(f"IPv{version}, the remote host asks: in clear: {clear(wire)}, answers: {answered}", flush=True)
            net.inside("g", "nft", "-f", "-", text=MARKS)
            marked = Flow(net, version, port=PORT + 2)
            while marked.questions < COUNT:
                time.sleep(0.05)
            answered = marked.answers > 0
            print(f"IPv{version}, rules replace marks: in clear: {clear(wire)}, answers: {answered}", flush=True)
            net.inside("g", "nft", "delete", "table", "inet", "marks")


main()
