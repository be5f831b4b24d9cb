#!/usr/bin/env python3
"""The programs of programs.py, and what each of them goes through. It runs on a machine of its own.

    programs_inside.py --list            the names of the programs
    programs_inside.py NAME [UNDER...]   UNDER: what each program is started with, `sealane run --` or nothing

Writes a line of JSON for each step: its name, what was seen or why it failed, and for some what must be seen."""
import contextlib
import dataclasses
import hashlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import time
import urllib.request

HERE = "/srv/suite"
UNDER = sys.argv[2:]
LIMIT = 60
# SHA-256 of "abc".
ABC = hashlib.sha256(b"abc").hexdigest()


# ---- processes


def until(what, condition):
    """Waits until the condition is true, and returns what it was. What it raises meanwhile is no answer yet."""
    end = time.monotonic() + LIMIT
    while True:
        why = ""
        try:
            if seen := condition():
                return seen
        except (OSError, subprocess.SubprocessError, ValueError, LookupError) as e:
            why = f" ({e})"
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {LIMIT} s{why}")
        time.sleep(0.02)


def shell(command):
    """What a command of the machine's own writes."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=LIMIT)
    if done.returncode:
        raise OSError(f"{command}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path) as file:
        return file.read()


def processes():
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def state(pid):
    return read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0]


def program(pid):
    """The program that a process has become, or that it launches."""
    while os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "sealane":
        pid = int(read(f"/proc/{pid}/task/{pid}/children").split()[0])
    return pid


def reads(pid):
    """Whether a program waits for its standard input: read(), or poll() before it."""
    return read(f"/proc/{program(pid)}/syscall").startswith(("0 0x0 ", "7 "))


class Started:
    """A program that was started by a service manager: leader of a session without a terminal."""

    def __init__(self, argv, stdin=subprocess.DEVNULL, stdout=None):
        with open(f"{HERE}/output", "ab") as output:
            self.process = subprocess.Popen(
                [*UNDER, *argv], stdin=stdin, stdout=stdout or output, stderr=output, start_new_session=True
            )
        self.pid = self.process.pid

    def kill(self, number):
        os.kill(self.pid, number)

    def ended(self):
        code = self.process.poll()
        return code is not None and f"status {code if code >= 0 else 128 - code}"

    def end(self):
        return until("the end of the program", self.ended)


class OnTerminal(Started):
    """A program that was started in a window: leader of the terminal's session."""

    def __init__(self, argv):
        argv = [*UNDER, *argv]
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execvp(argv[0], argv)

    def hang_up(self):
        os.close(self.terminal)

    def ended(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return False
        code = os.waitstatus_to_exitcode(status)
        return f"status {code if code >= 0 else 128 - code}"


def nothing_left(before):
    """Waits until no process is left but those of before."""
    try:
        until("", lambda: not processes() - before)
    except TimeoutError:
        names = [read(f"/proc/{pid}/cmdline").replace("\0", " ").strip() for pid in processes() - before]
        raise TimeoutError(f"left running: {names}") from None
    return "nothing left"


# ---- what programs are asked


def http(path="/"):
    with urllib.request.urlopen(f"http://127.0.0.1{path}", timeout=5) as answer:
        return answer.read().decode().strip()


def line(port=80):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as sock, sock.makefile() as file:
        return file.readline().strip()


def dns(name):
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect(("127.0.0.1", 53))
        sock.send(b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0" + labels + b"\0\0\x01\0\x01")
        answer = sock.recv(512)
        if answer[7] == 0:
            raise ValueError("no answer")
        return socket.inet_ntoa(answer[-4:])


# ---- kinds of programs


class Missing(Exception):
    """The machine lacks what a program needs."""


@dataclasses.dataclass
class Service:
    """A program that serves until it is stopped."""

    argv: list
    # What it is asked, and what it answers before and after it has read its other files, if it does that.
    use: callable
    one: str
    two: str = ""
    # Files by path; `other` are those that change.
    files: dict = dataclasses.field(default_factory=dict)
    other: dict = dataclasses.field(default_factory=dict)
    # Commands before everything, and before each start.
    before: str = ""
    reset: str = ""
    # The command that makes it read its files again, in place of SIGHUP.
    reload: str = ""
    # The end of its terminal: it `ends`, `reloads`, or `goes on`.
    hangup: str = "reloads"
    # The command with which it goes to the background, and the file with its number there.
    background: list = None
    pid_file: str = ""
    # It leaves its standard output open there.
    keeps_output: bool = False
    # A question whose answer is known under Sealane, and what it is.
    asks: callable = None
    known: str = ""
    # A call that it needs and that the kernel may lack.
    needs: str = ""
    # A part of what Sealane says of it.
    sentence: str = ""
    # A command that fails on a machine without what it needs, and what that is.
    wants: tuple = ()

    def again(self):
        for path, text in self.files.items():
            write(path, text)
        if self.reset:
            shell(self.reset)

    def answers(self, text):
        until(f"{text!r} for an answer", lambda: self.use() == text)
        return text

    def serves(self, started):
        def ready():
            if status := started.ended():
                raise RuntimeError(f"{status}: {read(HERE + '/output')[-2000:]}")
            return self.use() == self.one

        until("readiness", ready)
        return "serves"

    def reloads(self, kill):
        if not self.two:
            return self.answers(self.one)
        for path, text in self.other.items():
            write(path, text)
        if self.reload:
            shell(self.reload)
        else:
            kill(signal.SIGHUP)
        return self.answers(self.two)

    def goes(self, step):
        """Goes through everything."""
        self.again()
        if self.before:
            shell(self.before)
        if self.wants and subprocess.run(self.wants[0], shell=True, capture_output=True).returncode:
            raise Missing(self.wants[1])
        before = processes()
        started = Started(self.argv)
        if not step("start", lambda: self.serves(started)):
            return
        step("use", self.use)
        if self.asks:
            step("served", self.asks, self.known)
        if self.two:
            step("reload", lambda: self.reloads(started.kill))
        step("SIGSTOP and SIGCONT", lambda: stops(started, lambda: self.answers(self.two or self.one)))
        step("stop", lambda: self.stopped(started, before))
        step("terminal gone", lambda: self.loses_terminal(before))
        if self.background:
            step("background", lambda: self.in_background(before))

    def stopped(self, started, before):
        started.kill(signal.SIGTERM)
        return f"{started.end()}, {nothing_left(before)}"

    def loses_terminal(self, before):
        self.again()
        started = OnTerminal(self.argv)
        self.serves(started)
        if self.hangup == "reloads":
            self.reloads(lambda _: started.hang_up())
        else:
            started.hang_up()
        if self.hangup == "ends":
            return f"{started.end()}, {nothing_left(before)}"
        self.use()
        return f"{self.hangup}, {self.stopped(started, before)}"

    def in_background(self, before):
        self.again()
        # The one before may have left it.
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.pid_file)
        read_end, write_end = os.pipe()
        started = Started(self.background, stdout=write_end)
        os.close(write_end)
        status = started.end()
        self.answers(self.one)
        pid = int(until("its number", lambda: read(self.pid_file)))
        # Who reads what it writes hears of the end.
        os.set_blocking(read_end, False)
        closed = lambda: os.read(read_end, 4096) == b""
        if not self.keeps_output:
            until("the end of its output", closed)
        reloaded = self.reloads(lambda number: os.kill(pid, number))
        os.kill(pid, signal.SIGTERM)
        left = nothing_left(before)
        until("the end of its output", closed)
        os.close(read_end)
        return f"{status}, {reloaded}, {left}"


@dataclasses.dataclass
class Filter:
    """A program that reads its standard input, writes what it makes of it, and ends."""

    argv: list
    feed: bytes
    before: str = ""
    needs: str = ""
    sentence: str = ""

    def waits(self, started):
        until("a program that reads", lambda: reads(started.pid))
        return "reads"

    def fed(self, started):
        out = started.process.communicate(self.feed, timeout=LIMIT)[0].decode().strip()
        return f"{out!r}, {started.end()}"

    def goes(self, step):
        if self.before:
            shell(self.before)
        before = processes()
        pipe = subprocess.PIPE
        started = Started(self.argv, pipe, pipe)
        if not step("start", lambda: self.waits(started)):
            return
        step("use", lambda: self.fed(started))
        continued = Started(self.argv, pipe, pipe)
        self.waits(continued)
        step("SIGSTOP and SIGCONT", lambda: stops(continued, lambda: self.fed(continued)))
        stopped = Started(self.argv, pipe, pipe)
        self.waits(stopped)

        def stop():
            # Some end once their read() has returned.
            waits = woken(stopped)
            stopped.kill(signal.SIGTERM)
            until("a signal", lambda: stopped.ended() or woken(stopped) > waits)
            stopped.process.communicate()
            return f"{stopped.end()}, {nothing_left(before)}"

        step("stop", stop)

        def loses_terminal():
            # It does not read from its terminal: of a read that fails and SIGHUP, only the leader of a session gets
            # SIGHUP first (LIMITATIONS.md, ALG-55).
            os.mkfifo(f"{HERE}/terminal")
            fifo = os.open(f"{HERE}/terminal", os.O_RDWR)
            started = OnTerminal(["sh", "-c", f'exec "$@" <{HERE}/terminal', "sh", *self.argv])
            self.waits(started)
            started.hang_up()
            seen = f"{started.end()}, {nothing_left(before)}"
            os.close(fifo)
            return seen

        step("terminal gone", loses_terminal)

        def background():
            os.mkfifo(f"{HERE}/fifo")
            status = Started(["sh", "-c", '"$@" <fifo >out & exit 3', "sh", *self.argv]).end()
            with open(f"{HERE}/fifo", "wb") as fifo:
                fifo.write(self.feed)
            left = nothing_left(before)
            return f"{status}, {read(HERE + '/out').strip()!r}, {left}"

        step("background", background)


@dataclasses.dataclass
class Unit:
    """A service of systemd, which systemd-run starts in a sandbox."""

    service: Service
    needs: str = ""
    sentence: str = ""

    def goes(self, step):
        service = self.service
        service.again()
        shell(service.before)
        write("/etc/systemd/system/suite.target", "[Unit]\nDefaultDependencies=no\n")
        systemd = "unshare --pid --fork --kill-child --mount-proc env container=suite /lib/systemd/systemd --system"
        with open(f"{HERE}/systemd", "w") as output:
            starter = subprocess.Popen([*systemd.split(), "--unit=suite.target"], stdout=output, stderr=output)
        init = int(until("systemd", lambda: read(f"/proc/{starter.pid}/task/{starter.pid}/children")))

        def inside(*command):
            return shell(f"nsenter -t {init} -p -m {' '.join(command)}")

        until("systemd", lambda: inside("systemctl is-active suite.target"))
        before = processes()
        run = "systemd-run --quiet --unit=suite -p DefaultDependencies=no -p"
        sandbox = "Type=exec -p ProtectSystem=strict -p PrivateTmp=yes -p NoNewPrivileges=yes -p ProtectHome=yes"

        def start():
            inside(run, sandbox, *UNDER, *service.argv)
            return service.answers(service.one)

        def stop():
            inside("systemctl stop suite")
            seen = f"{inside('systemctl show -p Result,ExecMainStatus suite')}, {nothing_left(before)}"
            inside("systemctl reset-failed")
            return seen

        def frozen():
            # As `systemctl freeze` does, which needs D-Bus.
            group = "/sys/fs/cgroup" + inside("systemctl show -p ControlGroup --value suite")
            for word in "10":
                write(f"{group}/cgroup.freeze", word)
                until("a frozen group", lambda word=word: f"frozen {word}" in read(f"{group}/cgroup.events"))
            return service.answers(service.two)

        def background():
            service.again()
            forks = f"Type=forking -p PIDFile={service.pid_file}"
            inside(run, forks, *UNDER, *service.background)
            return f"{service.answers(service.one)}, {stop()}"

        if not step("start", start):
            return
        step("served", service.asks, service.known)
        step("reload", lambda: service.reloads(lambda n: inside(f"systemctl kill --kill-who=main -s {int(n)} suite")))
        step("freeze and thaw", frozen)
        step("stop", stop)
        step("background", background)


def woken(started):
    """How many times the program has been woken."""
    text = read(f"/proc/{program(started.pid)}/status")
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def stops(started, answers):
    """Stops and continues the program alone, which whoever has started it sees, then all of a job, as a shell does."""
    pid = until("the program", lambda: program(started.pid))
    for target in (pid, -started.pid):
        os.kill(target, signal.SIGSTOP)
        until("a stopped program", lambda: state(pid) == "T" and state(started.pid) == "T")
        os.kill(target, signal.SIGCONT)
        until("a continued program", lambda: state(pid) != "T" and state(started.pid) != "T")
    return answers()


# ---- the programs

PYTHON = '''
import hashlib, http.server, os, signal, socket, sys
if sys.argv[1:]:
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    open(sys.argv[1], "w").write(str(os.getpid()))
def again(*_):
    global word
    word = open("/srv/suite/word").read()
again()
signal.signal(signal.SIGHUP, again)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        text = word + " " + hashlib.sha256(word.encode()).hexdigest()
        if self.path == "/served":
            with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as s:
                s.bind(("hash", "sha256"))
                operation, _ = s.accept()
                with operation:
                    operation.send(b"abc")
                    text = operation.recv(32).hex()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(text.encode())
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", 80), Handler).serve_forever()
'''
NODE = '''
const fs = require("fs"), crypto = require("crypto")
let word
const again = () => { word = fs.readFileSync("/srv/suite/word", "utf8") }
again()
process.on("SIGHUP", again)
const page = () => word + " " + crypto.createHash("sha256").update(word).digest("hex")
require("http").createServer((_, answer) => answer.end(page())).listen(80, "127.0.0.1")
'''
JAVA = '''
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.file.*;
import java.security.MessageDigest;
import java.util.HexFormat;
class Page {
  public static void main(String[] args) throws Exception {
    var server = HttpServer.create(new InetSocketAddress("127.0.0.1", 80), 0);
    server.createContext("/", exchange -> {
      try {
        var word = Files.readString(Path.of("/srv/suite/word"));
        var digest = MessageDigest.getInstance("SHA-256").digest(word.getBytes());
        var text = (word + " " + HexFormat.of().formatHex(digest)).getBytes();
        exchange.sendResponseHeaders(200, text.length);
        exchange.getResponseBody().write(text);
      } catch (java.security.NoSuchAlgorithmException e) { throw new RuntimeException(e); }
      exchange.close();
    });
    server.start();
  }
}
'''


def hashed(word):
    return f"{word} {hashlib.sha256(word.encode()).hexdigest()}"


def digestd(command, known=ABC, **more):
    """A service of C, compiled by that command; `served` is its digest by AF_ALG."""
    path = f"{HERE}/digestd"
    return Service(
        argv=[path, f"{HERE}/word"],
        before=f"{command} -o {path} {HERE}/digestd.c",
        files={f"{HERE}/word": "one"},
        other={f"{HERE}/word": "two"},
        use=lambda: line().split()[0],
        one="one",
        two="two",
        asks=lambda: line().split(maxsplit=1)[1],
        known=known,
        background=[path, "-d", f"{HERE}/pid", f"{HERE}/word"],
        pid_file=f"{HERE}/pid",
        **more,
    )


def nginx(word):
    return {
        "/etc/nginx/nginx.conf": f"""user www-data; pid /run/nginx.pid; error_log stderr; events {{}}
http {{ access_log off; server {{ listen 127.0.0.1:80; location / {{ return 200 "{word}"; }} }} }}"""
    }


def sshd(banner):
    return {
        "/etc/ssh/sshd_config": f"""ListenAddress 127.0.0.1
PidFile /run/sshd.pid
UsePAM no
Banner {HERE}/{banner}
""",
        f"{HERE}/{banner}": f"{banner}\n",
    }


def login():
    return shell(
        f"ssh -i {HERE}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=INFO "
        "root@127.0.0.1 id -un 2>&1 | grep -v Permanently"
    )


def bird(net):
    return {
        f"{HERE}/bird.conf": f"""log stderr all; router id 192.0.2.1;
protocol device {{ }}
protocol kernel {{ ipv4 {{ export all; }}; }}
protocol static {{ ipv4; route {net} blackhole; }}"""
    }


def swanctl(name):
    return {
        "/etc/swanctl/swanctl.conf": f"""connections {{ {name} {{
  local_addrs = 127.0.0.1
  remote_addrs = 127.0.0.2
  local {{ auth = psk }}
  remote {{ auth = psk }}
  children {{ net {{ esp_proposals = aes128gcm128 }} }} }} }}"""
    }


def caddy(word):
    return {f"{HERE}/Caddyfile": f'http://127.0.0.1\nrespond "{word}"\n'}


def pluto(name):
    return {
        "/etc/ipsec.conf": f"""conn {name}
  left=127.0.0.1
  right=127.0.0.2
  authby=secret
  auto=add
"""
    }


PLUTO = ["/usr/libexec/ipsec/pluto", "--rundir", "/run/pluto", "--nssdir", f"{HERE}/nss"]
BGPD = ["-f", "/etc/frr/bgpd.conf", "-Z", "-A", "127.0.0.1"]
ZEBRA = ["-f", "/etc/frr/zebra.conf", "-A", "127.0.0.1"]
FRR = "install -d -o frr -g frr /run/frr && chown -R frr:frr /etc/frr"
PROGRAMS = {
    "dnsmasq": lambda: Service(
        argv=["dnsmasq", "-k", "-C", f"{HERE}/dnsmasq.conf"],
        files={
            f"{HERE}/dnsmasq.conf": f"""listen-address=127.0.0.1
bind-interfaces
no-resolv
no-hosts
addn-hosts={HERE}/hosts
pid-file=/run/dnsmasq.pid
""",
            f"{HERE}/hosts": "192.0.2.1 host.example\n",
        },
        other={f"{HERE}/hosts": "192.0.2.2 host.example\n"},
        use=lambda: dns("host.example"),
        one="192.0.2.1",
        two="192.0.2.2",
        background=["dnsmasq", "-C", f"{HERE}/dnsmasq.conf"],
        pid_file="/run/dnsmasq.pid",
    ),
    "nginx": lambda: Service(
        argv=["nginx", "-g", "daemon off;"],
        files=nginx("one"),
        other=nginx("two"),
        use=http,
        one="one",
        two="two",
        background=["nginx"],
        pid_file="/run/nginx.pid",
    ),
    "sshd": lambda: Service(
        argv=["/usr/sbin/sshd", "-D", "-e"],
        files=sshd("one"),
        other=sshd("two"),
        before=f"""mkdir -p /run/sshd /root/.ssh && ssh-keygen -qA && ssh-keygen -qt ed25519 -N '' -f {HERE}/key
            cp {HERE}/key.pub /root/.ssh/authorized_keys""",
        use=login,
        one="one\nroot",
        two="two\nroot",
        background=["/usr/sbin/sshd"],
        pid_file="/run/sshd.pid",
    ),
    "bird": lambda: Service(
        argv=["bird", "-f", "-u", "bird", "-g", "bird", "-c", f"{HERE}/bird.conf"],
        files=bird("10.9.1.0/24"),
        other=bird("10.9.2.0/24"),
        before="install -d -o bird -g bird /run/bird",
        use=lambda: shell("ip route show proto bird; birdc show route count | grep Total"),
        one="blackhole 10.9.1.0/24 metric 32 \nTotal: 1 of 1 routes for 1 networks in 2 tables",
        two="blackhole 10.9.2.0/24 metric 32 \nTotal: 1 of 1 routes for 1 networks in 2 tables",
        background=["bird", "-u", "bird", "-g", "bird", "-c", f"{HERE}/bird.conf", "-P", "/run/bird/bird.pid"],
        pid_file="/run/bird/bird.pid",
    ),
    "bgpd": lambda: Service(
        argv=["/usr/lib/frr/bgpd", *BGPD],
        files={
            "/etc/frr/bgpd.conf": """router bgp 65001
 bgp router-id 192.0.2.1
 no bgp network import-check
 address-family ipv4 unicast
  network 10.9.1.0/24
"""
        },
        before=FRR,
        use=lambda: " ".join(json.loads(shell("vtysh -d bgpd -c 'show bgp ipv4 unicast json'")).get("routes", [])),
        one="10.9.1.0/24",
        two="10.9.1.0/24 10.9.2.0/24",
        reload="""vtysh -d bgpd -c 'configure terminal' -c 'router bgp 65001' -c 'address-family ipv4 unicast' \
            -c 'network 10.9.2.0/24'""",
        hangup="goes on",
        background=["/usr/lib/frr/bgpd", "-d", *BGPD],
        pid_file="/run/frr/bgpd.pid",
    ),
    "zebra": lambda: Service(
        argv=["/usr/lib/frr/zebra", *ZEBRA],
        files={"/etc/frr/zebra.conf": "interface lo\n ip address 10.7.0.1/32\n"},
        before=FRR,
        use=lambda: shell("ip -4 -o addr show dev lo | grep -o 'inet 10.7[^ ]*'"),
        one="inet 10.7.0.1/32",
        two="inet 10.7.0.1/32\ninet 10.7.0.2/32",
        reload="vtysh -d zebra -c 'configure terminal' -c 'interface lo' -c 'ip address 10.7.0.2/32'",
        reset="ip addr flush dev lo scope global",
        hangup="goes on",
        background=["/usr/lib/frr/zebra", "-d", *ZEBRA],
        pid_file="/run/frr/zebra.pid",
    ),
    "charon": lambda: Service(
        argv=["charon-systemd"],
        files=swanctl("one"),
        other=swanctl("two"),
        use=lambda: shell("swanctl --load-all >/dev/null && swanctl --list-conns | grep -o '^[a-z]*'"),
        one="one",
        two="two",
        needs="NETLINK_XFRM",
    ),
    "pluto": lambda: Service(
        argv=[*PLUTO, "--nofork", "--stderrlog"],
        files=pluto("one"),
        other=pluto("two"),
        before=f"mkdir -p /run/pluto {HERE}/nss && certutil -N -d sql:{HERE}/nss --empty-password",
        use=lambda: shell("""/usr/libexec/ipsec/whack --rundir /run/pluto --status | grep -o '"[a-z]*":' | uniq"""),
        one='"one":',
        two='"one":\n"two":',
        reload="ipsec addconn --ctlsocket /run/pluto/pluto.ctl --autoall",
        hangup="goes on",
        background=PLUTO,
        pid_file="/run/pluto/pluto.pid",
        needs="NETLINK_XFRM",
    ),
    "iwd": lambda: Service(
        argv=["/usr/libexec/iwd"],
        before="mkdir -p /run/dbus && dbus-uuidgen --ensure && dbus-daemon --system --fork && mkfifo /dev/rfkill",
        use=lambda: shell(f"busctl --auto-start=no call {IWD} /net/connman/iwd {IWD}.Daemon GetInfo"),
        one='a{sv} 3 "NetworkConfigurationEnabled" b false "StateDirectory" s "/var/lib/iwd" "Version" s "2.3"',
        hangup="ends",
        needs="AF_ALG",
        wants=("genl ctrl list | grep -q nl80211", "the kernel has no nl80211"),
    ),
    "cryptsetup": lambda: Filter(
        argv=["cryptsetup", "open", "--test-passphrase", "--key-file", "-", f"{HERE}/disk"],
        feed=b"secret",
        before=f"""truncate -s 20M {HERE}/disk && printf secret | {' '.join(UNDER)} cryptsetup luksFormat -q \
            --pbkdf pbkdf2 --pbkdf-force-iterations 1000 --key-file - {HERE}/disk""",
        needs="AF_ALG",
    ),
    "qemu-nbd": lambda: Service(
        argv=["qemu-nbd", "--persistent", "-k", f"{HERE}/nbd", *QEMU],
        # The disk is made by cryptsetup, which takes a number of iterations: qemu-img measures them by its CPU time, and gives up where the
        # kernel tells that there was none. Behind a header of 2 MiB it has room for the text.
        before=f"""printf secret >{HERE}/secret && printf %65536s abc >{HERE}/plain &&
            truncate -s {2 * 1024 + 64}K {HERE}/disk && sealane run -- cryptsetup luksFormat -q --type luks1 \
                --pbkdf-force-iterations 1000 --key-file {HERE}/secret {HERE}/disk &&
            qemu-img convert -n --object secret,id=s,file={HERE}/secret -f raw {HERE}/plain --target-image-opts {QEMU[-1]}""",
        use=lambda: shell(f"qemu-img convert -f raw nbd+unix:///?socket={HERE}/nbd out && sha256sum <out"),
        one=f"{hashlib.sha256(b'abc'.rjust(65536)).hexdigest()}  -",
        hangup="ends",
        background=["qemu-nbd", "--fork", "--persistent", "--pid-file", f"{HERE}/pid", "-k", f"{HERE}/nbd", *QEMU],
        pid_file=f"{HERE}/pid",
    ),
    "python": lambda: Service(
        argv=["python3", f"{HERE}/page.py"],
        files={f"{HERE}/page.py": PYTHON, f"{HERE}/word": "one"},
        other={f"{HERE}/word": "two"},
        use=http,
        one=hashed("one"),
        two=hashed("two"),
        asks=lambda: http("/served"),
        known=ABC,
        background=["python3", f"{HERE}/page.py", f"{HERE}/pid"],
        pid_file=f"{HERE}/pid",
    ),
    "java": lambda: Service(
        argv=["java", "-cp", HERE, "Page"],
        files={f"{HERE}/Page.java": JAVA, f"{HERE}/word": "one"},
        before=f"javac -d {HERE} {HERE}/Page.java",
        use=http,
        one=hashed("one"),
        hangup="ends",
    ),
    "node": lambda: Service(
        argv=["node", f"{HERE}/page.js"],
        files={f"{HERE}/page.js": NODE, f"{HERE}/word": "one"},
        other={f"{HERE}/word": "two"},
        use=http,
        one=hashed("one"),
        two=hashed("two"),
    ),
    # Caddy is a program of Go.
    "caddy": lambda: Service(
        argv=["caddy", "run", "--config", f"{HERE}/Caddyfile"],
        files=caddy("one"),
        other=caddy("two"),
        use=http,
        one="one",
        two="two",
        reload=f"caddy reload --config {HERE}/Caddyfile",
        hangup="goes on",
        background=["caddy", "start", "--config", f"{HERE}/Caddyfile", "--pidfile", f"{HERE}/pid"],
        pid_file=f"{HERE}/pid",
        keeps_output=True,
    ),
    "busybox": lambda: Filter(argv=["busybox", "sha256sum"], feed=b"abc"),
    "glibc": lambda: digestd("gcc -O1"),
    "static": lambda: digestd("gcc -O1 -static"),
    "musl": lambda: digestd("musl-gcc -O1 -idirafter /usr/include -idirafter /usr/include/x86_64-linux-gnu"),
    "ASan": lambda: digestd("gcc -O1 -g -fsanitize=address"),
    # A static program in a container, under the profile that podman gives to all.
    "podman": lambda: dataclasses.replace(
        digestd("mkdir -p root/dev root/etc root/proc root/run root/sys root/tmp && gcc -O1 -static"),
        argv=f"""podman --storage-driver vfs --cgroup-manager cgroupfs --events-backend file --runtime crun run --rm
            --network host --cgroups disabled --volume {HERE}:{HERE} --rootfs {HERE}/root
            {HERE}/digestd {HERE}/word""".split(),
        background=None,
    ),
    "systemd-run": lambda: Unit(digestd("gcc -O1")),
    "i386": lambda: digestd("gcc -O1 -m32", "errno 97", sentence=FOREIGN),
    "x32": lambda: digestd(
        "gcc -O1 -mx32",
        "errno 97",
        sentence=FOREIGN,
        wants=(f"{HERE}/digestd; [ $? = 2 ]", "the kernel runs no programs of x32"),
    ),
}
FOREIGN = "is served to 64-bit programs only"
IWD = "net.connman.iwd"
QEMU = [
    "--object", f"secret,id=s,file={HERE}/secret",
    "--image-opts", f"driver=luks,file.filename={HERE}/disk,key-secret=s",
]  # fmt: skip


# ---- the steps


def absent(*what):
    try:
        socket.socket(*what).close()
        return False
    except OSError:
        return True


def main():
    if sys.argv[1] == "--list":
        print("\n".join(PROGRAMS))
        return
    os.makedirs(HERE, exist_ok=True)
    os.chdir(HERE)
    shell("ip link set lo up")
    one = PROGRAMS[sys.argv[1]]()

    def tell(**what):
        print(json.dumps(what), flush=True)

    if one.needs == "AF_ALG" and absent(socket.AF_ALG, socket.SOCK_SEQPACKET):
        tell(lacks=one.needs)

    if one.needs == "NETLINK_XFRM" and UNDER:
        write("/etc/sealane/sealane.toml", "[ipsec]\n")
        os.chmod("/etc/sealane/sealane.toml", 0o600)
        with open(f"{HERE}/daemon", "w") as output:
            daemon = ["sealane", "daemon", "--config", "/etc/sealane/sealane.toml"]
            subprocess.Popen(daemon, stdout=output, stderr=output)
        until("a daemon", lambda: "IPsec in" in read(f"{HERE}/daemon"))

    def step(name, action, known=None):
        try:
            seen, failed = action(), False
        except Exception as e:
            seen, failed = f"{type(e).__name__}: {e}", True
        tell(step=name, seen=seen, failed=failed, known=known)
        return not failed

    write(f"{HERE}/output", "")
    try:
        one.goes(step)
    except Missing as e:
        tell(skip=str(e))
        return
    except Exception as e:
        tell(step="before", seen=f"{type(e).__name__}: {e}", failed=True, known=None)
    said = [text for text in read(f"{HERE}/output").splitlines() if text.startswith("sealane:") or "ld.so" in text]
    tell(step="said", seen="\n".join(said), failed=False, known=one.sentence)


if __name__ == "__main__":
    main()
