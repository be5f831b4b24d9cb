#!/usr/bin/env python3
"""Firewall rules that ask for IPsec, and those that `sealane check --firewall` says to write instead.

usage: firewall.py CLIENT GATEWAY REMOTE [EXPECTED]

The three network namespaces exist, and are empty. A client is behind a gateway with a firewall, which has policies for flows
between its net and that of a remote gateway. Each idiom has a port of its own. Prints for each idiom and flow whether datagrams
have arrived, and from where. Without SEALANE the kernel's own IPsec serves both gateways, and the rules are as they are.

With SEALANE, an executable, its daemon serves them, and EXPECTED has what is printed without it. First the rules are as they are:
the check has to find those idioms that do not do the same, in the file and in force, and no others. Then they are as the check
says. With LANGUAGE=iptables all of it is said in iptables; the outcome has to be the same.
"""
import json, os, re, selectors, socket, sys, time
from three_spaces import FAMILY, SEALANE, Net, address, key_manager, name, policies, prefix, run, state

IPTABLES = os.environ.get("LANGUAGE") == "iptables"
QUIET_S = 3
PATIENCE_S = 60
# After what was expected, something else may still come.
AFTER_S = 0.5
PORT = 7000
SAID = re.compile(rb"<(.*)>")

# Sender, its address, the destination, its address. Those that are not clear go through the tunnel.
FLOWS = [
    ("in", "r", "remote.1", "g", "lan.1"), ("in, clear", "r", "wire.2", "g", "wire.1"),
    ("in for a client", "r", "remote.1", "c", "lan.2"), ("in for a client, clear", "r", "world.1", "c", "outside.2"),
    ("out", "g", "lan.1", "r", "remote.1"), ("out, clear", "g", "wire.1", "r", "world.1"),
    ("out of a client", "c", "lan.2", "r", "remote.1"), ("out of a client, clear", "c", "outside.2", "r", "world.1"),
]

# Chains: type, hook, priority; table and chain of iptables.
CHAINS = {
    "raw": ("filter", "prerouting", -300, "raw", "PREROUTING"), "mangle": ("filter", "prerouting", -150, "mangle", "PREROUTING"),
    "in": ("filter", "input", 0, "filter", "INPUT"), "forwarded": ("filter", "forward", 0, "filter", "FORWARD"),
    "out": ("filter", "output", 0, "filter", "OUTPUT"), "post": ("filter", "postrouting", -150, "mangle", "POSTROUTING"),
    "nat": ("nat", "postrouting", 100, "nat", "POSTROUTING"),
}
NET = {4: ("ip", prefix(4, "remote")), 6: ("ip6", prefix(6, "remote"))}


def both(*rules):
    """The same rules in both languages: chain, nft, iptables. FAMILY and REMOTE are filled in."""
    return [list(rule) for rule in rules]


DROP, ACCEPT = ("drop", "-j DROP"), ("accept", "-j ACCEPT")
# Title, rules, and those to write where the check has no rule to offer.
IDIOMS = [
    ("accept what came through a tunnel", both(
        ("in", "meta ipsec exists accept", "-m policy --dir in --pol ipsec -j ACCEPT"), ("in", *DROP),
        ("forwarded", 'iifname "wire" meta ipsec exists accept', "-i wire -m policy --dir in --pol ipsec -j ACCEPT"),
        ("forwarded", 'iifname != "lan" drop', "! -i lan -j DROP")), None),
    ("accept what came through one tunnel", both(
        ("in", "FAMILY saddr REMOTE ipsec in reqid VERSION accept",
         "-s REMOTE -m policy --dir in --pol ipsec --reqid VERSION -j ACCEPT"), ("in", *DROP)), None),
    ("drop what did not come through a tunnel", both(
        ("in", "meta ipsec missing drop", "-m policy --dir in --pol none -j DROP")), None),
    ("drop what did not come through a tunnel, from one interface", both(
        ("in", 'iifname "wire" meta ipsec missing drop', "-i wire -m policy --dir in --pol none -j DROP"),
        ("forwarded", 'iifname "wire" meta ipsec missing drop', "-i wire -m policy --dir in --pol none -j DROP")), None),
    ("drop what did not come through a tunnel, but from one interface", both(
        ("forwarded", 'iifname != "lan" meta ipsec missing drop', "! -i lan -m policy --dir in --pol none -j DROP")), both(
        ("forwarded", None, "! -i lan -j OTHERS"), ("OTHERS", None, "! -i sealane-ipsec -j DROP"))),
    ("by a map", both(
        ("in", "meta ipsec vmap { exists : accept, missing : drop }", "-m policy --dir in --pol ipsec -j ACCEPT"),
        ("in", *DROP)), both(
        ("in", 'iifname vmap { "sealane-ipsec" : accept }', None), ("in", "drop", None))),
    ("mark what comes encrypted, accept the mark", both(
        ("mangle", "meta l4proto esp meta mark set 7", "-p esp -j MARK --set-mark 7"),
        ("in", "meta mark 7 accept", "-m mark --mark 7 -j ACCEPT"), ("in", *DROP)), both(
        ("mangle", 'iifname "sealane-ipsec" meta mark set 7', "-i sealane-ipsec -j MARK --set-mark 7"),
        ("in", "meta mark 7 accept", "-m mark --mark 7 -j ACCEPT"), ("in", *DROP))),
    ("accept what goes into a tunnel", both(
        ("out", "rt ipsec exists accept", "-m policy --dir out --pol ipsec -j ACCEPT"), ("out", *DROP),
        ("forwarded", 'iifname "lan" oifname "wire" rt ipsec exists accept', "-i lan -o wire -m policy --dir out --pol ipsec -j ACCEPT"),
        ("forwarded", 'iifname "lan" drop', "-i lan -j DROP")), None),
    ("drop what does not go into a tunnel", both(
        ("out", 'oifname "wire" rt ipsec missing drop', "-o wire -m policy --dir out --pol none -j DROP"),
        ("forwarded", 'iifname "lan" rt ipsec missing drop', "-i lan -m policy --dir out --pol none -j DROP")), None),
    ("accept what goes into one tunnel, behind the route", both(
        ("post", "FAMILY daddr REMOTE ipsec out reqid VERSION accept",
         "-d REMOTE -m policy --dir out --pol ipsec --reqid VERSION -j ACCEPT"), ("post", *DROP)), None),
    ("masquerade what does not go into a tunnel", both(
        ("nat", "rt ipsec missing masquerade", "-m policy --dir out --pol none -j MASQUERADE")), None),
    ("masquerade what does not go into a tunnel, by one interface", both(
        ("nat", 'oifname "wire" rt ipsec missing masquerade', "-o wire -m policy --dir out --pol none -j MASQUERADE")), None),
    ("drop what has no route back", both(
        ("raw", "fib saddr . iif oif missing drop", "-m rpfilter --invert -j DROP")), None),
    ("accept what has a route back", both(
        ("raw", "fib saddr . iif oif exists accept", "-m rpfilter -j ACCEPT"), ("raw", *DROP)), None),
]


def filled(rule, version):
    family, remote = NET[version]
    return rule.replace("FAMILY", family).replace("REMOTE", remote).replace("VERSION", str(version))


class Firewall:
    """Rules of the gateway. Those of an idiom are a text of lines, so that the check can name them."""

    def __init__(self, net, instead=False):
        self.net, self.found = net, set()
        # For each version (nft has both in one text) lines of rules with the title that they belong to.
        self.texts = {}
        for version in (4, 6):
            lines = self.texts.setdefault(version if IPTABLES else 0, [])
            for at, (title, rules, others) in enumerate(IDIOMS):
                written = [rule for rule in others or [] if rule[2 if IPTABLES else 1]]
                for chain, *words in written if instead and written else rules:
                    lines.append((title, chain, self.of_port(filled(words[IPTABLES], version), chain, version, PORT + at)))

    def of_port(self, rule, chain, version, port):
        if IPTABLES:
            return f"-p udp --dport {port} {rule}" if "-p esp" not in rule else rule
        return f"meta nfproto ipv{version} udp dport {port} {rule}" if "l4proto esp" not in rule else rule

    def chain(self, chain, at=0):
        """A chain of iptables."""
        return CHAINS[chain][3 + at] if chain in CHAINS else ("filter", chain)[at]

    def text(self, version):
        """The text, and the title of each of its lines."""
        lines, text = self.texts[version], [("", "")]
        if IPTABLES:
            for table in sorted({self.chain(chain) for _, chain, _ in lines}):
                text.append(("", f"*{table}"))
                text += [("", f":{own} - [0:0]") for own in sorted({c for _, c, _ in lines if c not in CHAINS}) if table == "filter"]
                text += [(title, f"-A {self.chain(chain, 1)} {rule}") for title, chain, rule in lines if self.chain(chain) == table]
                text.append(("", "COMMIT"))
            return text
        text.append(("", "table inet firewall {"))
        for chain, (kind, hook, priority, *_) in CHAINS.items():
            text.append(("", f"chain {chain} {{"))
            text.append(("", f"type {kind} hook {hook} priority {priority};"))
            text += [(title, rule) for title, of, rule in lines if of == chain]
            text.append(("", "}"))
        return text + [("", "}")]

    def check(self, *files):
        """The findings of the check in the gateway."""
        words = [SEALANE, "check", "--json", "--firewall", *files]
        done = run("ip", "netns", "exec", self.net.names["g"], "sh", "-c", '"$@" 2>/dev/null || [ $? = 1 ]', "sh", *words)
        return json.loads(done)["findings"]

    def load(self, as_found=False):
        """Puts the rules into force, or those that the check says to write instead. Notes which titles it has found."""
        flush(self.net)
        for version in self.texts:
            text = self.text(version)
            if SEALANE:
                file = f"{os.environ['SEALANE_RUNTIME_DIR']}/rules"
                with open(file, "w") as f:
                    f.write("\n".join(line for _, line in text))
                for finding in self.check(file):
                    title, _ = text[finding["line"] - 1]
                    self.found.add(title)
                    if as_found:
                        text[finding["line"] - 1] = (title, "\n".join(finding["instead"]))
            program = {0: ["nft", "-f", "-"], 4: ["iptables-restore"], 6: ["ip6tables-restore"]}[version]
            self.net.inside("g", *program, text="\n".join(line for _, line in text) + "\n")

    def found_in_force(self):
        """The titles of what the check finds in force."""
        ports = [re.search(r"dport (\d+)", finding["rule"]) for finding in self.check() if finding.get("line") is None]
        return {IDIOMS[int(port[1]) - PORT][0] for port in ports}


def flush(net):
    net.inside("g", "sh", "-c", "nft delete table inet firewall 2>/dev/null; :")
    if IPTABLES:
        for program in ("iptables", "ip6tables"):
            for table in ("raw", "mangle", "nat", "filter"):
                net.inside("g", program, "-t", table, "-F")
                net.inside("g", program, "-t", table, "-X")


class Probing:
    """Datagrams, and what has arrived of them."""

    def __init__(self, net):
        self.net, self.number, self.seen = net, 0, {}
        # The title and the words of each flow's line.
        self.tags = [(title, f"IPv{version}, {title}, {flow}") for version in (4, 6) for title, *_ in IDIOMS for flow, *_ in FLOWS]
        self.select = selectors.DefaultSelector()
        for place in net.names:
            for version in (4, 6):
                for port in range(PORT, PORT + len(IDIOMS)):
                    s = self.udp(place, version)
                    s.bind(("0.0.0.0" if version == 4 else "::", port))
                    self.select.register(s, selectors.EVENT_READ)

    def udp(self, place, version):
        s = self.net.socket(place, FAMILY[version], socket.SOCK_DGRAM)
        if version == 6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return s

    def poll(self, patience_s):
        """Whether something has come."""
        events = self.select.select(patience_s)
        for key, _ in events:
            data, peer = key.fileobj.recvfrom(2048)
            number, tag = SAID.search(data)[1].decode().split(" ", 1)
            # Others are late.
            if int(number) == self.number:
                self.seen[tag] = f"arrived from {name(peer[0])}"
        return bool(events)

    def title(self, line):
        """The title of a line."""
        tag = line.rpartition(": ")[0]
        return next(title for title, of in self.tags if of == tag)

    def turn(self, number, wanted):
        """Sends all once; returns a line for each. Waits for the lines that are wanted, or for silence."""
        self.number, self.seen = number, {}
        for version in (4, 6):
            for at, (title, *_) in enumerate(IDIOMS):
                for flow, place, source, _, destination in FLOWS:
                    s = self.udp(place, version)
                    # A port that conntrack does not know yet.
                    s.bind((address(version, source), 20000 + 1000 * number + at))
                    said = f"<{number} IPv{version}, {title}, {flow}>".encode()
                    try:
                        s.sendto(said, (address(version, destination), PORT + at))
                    except OSError:
                        pass  # A rule of output refuses it.
                    s.close()
                    self.poll(0)
        begun = last = time.monotonic()
        while True:
            if self.poll(0.1):
                last = time.monotonic()
            lines = [f"{tag}: {self.seen.get(tag, 'nothing')}" for _, tag in self.tags]
            now = time.monotonic()
            if wanted is None:
                done = now - last > QUIET_S
            else:
                done = wanted <= set(lines) and now - last > AFTER_S or now - begun > PATIENCE_S
            if done:
                return lines


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    expected = set(open(sys.argv[4]).read().splitlines()) if sys.argv[4:] else None
    with key_manager(net) as manage:
        for end, place in enumerate("gr"):
            script = ""
            for version in (4, 6):
                for way in (0, 1):
                    script += state(version, way)
                    script += policies(version, way, end, prefix(version, "lan"), prefix(version, "remote"))
            manage(place, script)
        probing = Probing(net)
        firewall = Firewall(net)
        firewall.load()
        if SEALANE:
            found = firewall.found
            in_force = firewall.found_in_force()
            if in_force != found:
                print("found in force:", sorted(in_force), "in the file:", sorted(found))
            # The check knows no marks.
            good = {title for title, _, _ in IDIOMS if title not in found and not title.startswith("mark ")}
            outcome = probing.turn(1, {line for line in expected if probing.title(line) in good})
            for title, _, _ in IDIOMS:
                works = {line for line in outcome if probing.title(line) == title} <= expected
                if works != (title in good):
                    print(f"{title}: as it is it {'works' if works else 'does not work'}, found: {title in found}")
            firewall = Firewall(net, instead=True)
            firewall.load(as_found=True)
        print("\n".join(probing.turn(2, expected)), flush=True)


main()
