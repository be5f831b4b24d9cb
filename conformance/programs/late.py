#!/usr/bin/env python3
"""What is covered only as it leaves, while others change what its way consists of.

usage: late.py CLIENT GATEWAY REMOTE [flowtable]      see three_spaces.py

The client sends datagrams that the gateway's source NAT makes covered, and others that are covered from the start; the gateway sends covered
ones by a socket that is bound to the wire. The remote host answers. With `flowtable` a flowtable of the gateway is to take the client's flows
over.

First nobody protects them. Prints for each event of the gateway how many of the datagrams have come to the remote end in clear by then, and whether answers come
again: late, when the daemon does not run, as soon as there is another one.
"""
import contextlib, os, select, signal, socket, subprocess, sys, tempfile, threading, time
from three_spaces import FAMILY, SEALANE, Net, address, policies, prefix, seen, state

PORT = 7000
QUESTION = b"never in clear"
PATIENCE_S = 60
COUNT = 10
NAT = """
table inet others {
  FLOWTABLE
  chain post { type nat hook postrouting priority 100;
    ip saddr 10.82.2.2 udp dport 7000 snat ip to 10.82.1.77
    ip6 saddr fd82:0:0:2::2 udp dport 7000 snat ip6 to fd82:0:0:1::77
  }
  chain forward { type filter hook forward priority 0; FLOW counter; }
}
"""
FLOWTABLE = 'flowtable flows { hook ingress priority 0; devices = { "lan", "wire" }; }'
MARKS = """
table inet marks {
  chain pre { type filter hook prerouting priority -150; meta mark set 9; }
  chain pre-behind { type filter hook prerouting priority -50; meta mark set 9; }
  chain out { type route hook output priority -150; meta mark set 9; }
  chain out-behind { type route hook output priority -50; meta mark set 9; }
  chain post { type filter hook postrouting priority -150; meta priority set 6; meta mark set 11; }
}
"""


class Flow:
    """Datagrams that are answered, until the end of the program."""

    def __init__(self, net, version, place, host, device, port):
        self.net, self.answers, self.place, self.device = net, 0, place, device
        self.version, self.here = version, (address(version, host), port)
        self.there = (address(version, "remote.1"), port)
        self.server = net.socket("r", FAMILY[version], socket.SOCK_DGRAM)
        self.server.bind(self.there)
        for work in (self.serve, self.ask):
            threading.Thread(target=work, daemon=True).start()

    def serve(self):
        while True:
            data, peer = self.server.recvfrom(2048)
            with contextlib.suppress(OSError):
                self.server.sendto(data, peer)

    def open(self, device):
        s = self.net.socket(self.place, FAMILY[self.version], socket.SOCK_DGRAM)
        if device:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind(self.here)
        return s

    def ask(self):
        # What was opened comes by our device, what comes in clear by the wire.
        mouth, ear = None, self.open(None)
        while True:
            try:
                mouth = mouth or (self.open(self.device) if self.device else ear)
                mouth.sendto(QUESTION, self.there)
                for s in select.select({mouth, ear}, [], [], 0.2)[0]:
                    s.recv(2048)
                    self.answers += 1
            except OSError:
                # A bound socket does not find its device again when that has gone.
                if self.device and mouth:
                    mouth = mouth.close()
            # Six flows at a higher rate leave a kernel on a busy machine no time for anything else.
            time.sleep(0.1)


def goes_on(flows):
    """Waits until each flow has been answered COUNT times more."""
    enough, begun = [flow.answers + COUNT for flow in flows], time.monotonic()
    while time.monotonic() - begun < PATIENCE_S:
        if all(flow.answers >= wanted for flow, wanted in zip(flows, enough)):
            return True
        time.sleep(0.05)
    print([(flow.here, flow.answers, wanted) for flow, wanted in zip(flows, enough)], file=sys.stderr)
    return False


def clear(s):
    """The datagrams that have come in clear to a packet socket since the last time."""
    return sum(about[2] != socket.PACKET_OUTGOING and QUESTION in frame for frame, about in seen(s))


def put_bridge(net):
    """Makes the remote host's wire a bridge, by which opened packets come in, with a port by which only the wire's come."""
    for words in [("set", "wire", "down"), ("set", "wire", "name", "port"), ("add", "wire", "type", "bridge"), ("set", "port", "master", "wire")]:
        net.ip("r", "link", *words)
    net.ip("r", "addr", "flush", "dev", "port")
    for device in ("port", "wire"):
        net.ip("r", "link", "set", device, "up")
    for version in (4, 6):
        net.ip("r", "addr", "add", prefix(version, "wire", 2), "dev", "wire")
        net.ip("r", f"-{version}", "route", "replace", "default", "via", address(version, "wire.1"), "dev", "wire")


class Daemons:
    """One daemon after another, with the same folder."""

    def __init__(self, net, folder):
        self.net, self.folder, self.count = net, folder, 0
        os.environ["SEALANE_RUNTIME_DIR"] = f"{folder}/run"
        os.mkdir(f"{folder}/run", 0o700)
        with open(f"{folder}/sealane.toml", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write(f'[ipsec]\nnetns = ["{net.names["g"]}", "{net.names["r"]}"]\n{os.environ.get("IPSEC", "")}\n')
        self.start()
        for end, place in enumerate("gr"):
            pairs = [(version, way) for version in (4, 6) for way in (0, 1)]
            self.run(place, "".join(policies(v, way, end, prefix(v, "lan"), prefix(v, "remote")) for v, way in pairs))

    def run(self, place, script):
        self.net.inside(place, SEALANE, "run", "--", "sh", "-e", text=script)

    def start(self):
        """Starts one, which has the policies of the one before. States are new."""
        self.count += 1
        log = f"{self.folder}/log{self.count}"
        with open(log, "w") as out:
            self.daemon = subprocess.Popen([SEALANE, "daemon", "--config", f"{self.folder}/sealane.toml"], stdout=out, stderr=out)
        while "IPsec" not in open(log).read():
            if self.daemon.poll() is not None:
                sys.exit(open(log).read())
            time.sleep(0.05)
        states = "".join(state(version, way) for version in (4, 6) for way in (0, 1))
        for place in "gr":
            self.run(place, f"ip xfrm state flush\n{states}")

    def end(self, number):
        self.daemon.send_signal(number)
        self.daemon.wait()

    def again(self, number):
        """Ends one, and starts the next."""
        self.end(number)
        time.sleep(1)
        self.start()


class Gateway:
    """The events of the gateway."""

    def __init__(self, net, daemons, nat):
        self.net, self.daemons, self.nat = net, daemons, nat
        self.wire = "wire"

    def nft(self, text):
        self.net.inside("g", "nft", "-f", "-", text=text)

    def ip(self, *words):
        self.net.ip("g", *words)

    def configure(self, device):
        """Gives a device the addresses of the wire, and the ways that lead by it."""
        self.ip("link", "set", device, "up")
        for version in (4, 6):
            self.ip("addr", "replace", prefix(version, "wire", 1), "dev", device)
            self.ip(f"-{version}", "route", "replace", "default", "via", address(version, "wire.2"), "dev", device)

    def marks(self):
        self.nft(MARKS)

    def flush_rules(self):
        self.nft("flush ruleset\n" + self.nat)

    def flush_routing_rules(self):
        for version in (4, 6):
            for priority in ("92", "93", "97", "99"):
                self.ip(f"-{version}", "rule", "del", "pref", priority)

    def down(self):
        self.ip("link", "set", "wire", "down")
        self.configure("wire")

    def rename(self):
        self.ip("link", "set", "wire", "down")
        self.ip("link", "set", "wire", "name", "other")
        self.configure("other")
        time.sleep(1)
        self.ip("link", "set", "other", "down")
        self.ip("link", "set", "other", "name", "wire")
        self.configure("wire")

    def move(self):
        for place, to in [("g", "c"), ("c", "g")]:
            self.net.ip(place, "link", "set", "wire", "netns", self.net.names[to])
        self.configure("wire")

    def move_without_daemon(self):
        """As when the daemon does not get to see it."""
        self.daemons.daemon.send_signal(signal.SIGSTOP)
        time.sleep(11)
        self.move()
        time.sleep(1)
        self.daemons.daemon.send_signal(signal.SIGCONT)

    def device_down(self):
        self.ip("link", "set", "sealane-out0", "down")
        time.sleep(1)
        self.ip("link", "set", "sealane-out0", "up")

    def device_deleted(self):
        self.ip("link", "del", "sealane-out0")

    def killed(self):
        self.daemons.again(signal.SIGKILL)

    def ended(self):
        self.daemons.again(signal.SIGTERM)

    def killed_while_packets_wait(self):
        """For the address of their neighbour."""
        self.net.ip("r", "link", "set", "wire", "arp", "off")
        self.ip("neigh", "flush", "dev", "wire")
        time.sleep(0.5)
        self.daemons.end(signal.SIGKILL)
        self.net.ip("r", "link", "set", "wire", "arp", "on")
        time.sleep(2)
        self.daemons.start()

    def policies_again(self):
        """New policies for old ones, again and again, as key managers write them."""
        text = ""
        for version in (4, 6):
            for selector in [f"src {prefix(version, 'lan')} dst {prefix(version, 'remote')}"]:
                text += f"ip xfrm policy update {selector} dir out tmpl src {address(version, 'wire.1')} dst {address(version, 'wire.2')} "
                text += f"proto esp reqid {version} mode tunnel\n"
        for _ in range(20):
            self.daemons.run("g", text)


EVENTS = {
    "nothing": lambda gateway: None,
    "marks and priorities of others": Gateway.marks,
    "all rules of others flushed": Gateway.flush_rules,
    "routing rules flushed": Gateway.flush_routing_rules,
    "policies updated": Gateway.policies_again,
    "the interface down and up": Gateway.down,
    "the interface renamed and back": Gateway.rename,
    "the interface moved away and back": Gateway.move,
    "the same while the daemon stands still": Gateway.move_without_daemon,
    "our device down and up": Gateway.device_down,
    "our device deleted": Gateway.device_deleted,
    "the daemon ended": Gateway.ended,
    "the daemon killed": Gateway.killed,
    "the daemon killed while packets wait for a neighbour": Gateway.killed_while_packets_wait,
}


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    flowtable = sys.argv[4:] == ["flowtable"]
    nat = NAT.replace("FLOWTABLE", FLOWTABLE if flowtable else "").replace("FLOW ", "meta l4proto udp flow add @flows; " if flowtable else "")
    net.inside("g", "nft", "-f", "-", text=nat)
    put_bridge(net)
    with tempfile.TemporaryDirectory() as folder:
        wire, flows = net.watch("r", "port"), []
        for version in (4, 6):
            flows.append(Flow(net, version, "c", "outside.2", None, PORT))
            flows.append(Flow(net, version, "g", "lan.1", "wire", PORT + 1))
            flows.append(Flow(net, version, "c", "lan.2", None, PORT + 2))
        print(f"before: in clear {goes_on(flows) and clear(wire) > COUNT}", flush=True)
        daemons = Daemons(net, folder)
        # What was on its way.
        clear(wire)
        try:
            gateway = Gateway(net, daemons, nat)
            for event, happens in EVENTS.items():
                happens(gateway)
                answered = goes_on(flows)
                print(f"{event}: in clear {clear(wire)}, answers: {answered}", flush=True)
        finally:
            daemons.end(signal.SIGTERM)


main()
