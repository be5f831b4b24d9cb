#!/usr/bin/env python3
"""Programs that use OpenSSL, with the provider at one end and OpenSSL's default provider at the other; openssl_programs.sh runs
this on a machine of its own. Writes PASS or FAIL for each check. Exit status: 0 all passed, 1 not."""
import glob
import os
import pathlib
import re
import resource
import select
import signal
import subprocess
import sys
import time

import openssl_inside
from openssl_inside import LIMIT, MODULE, PLACE, check, environment, has_module, need, run, serving, within

TLS12 = """AES128-SHA AES256-SHA AES128-SHA256 AES256-SHA256 ECDHE-RSA-AES128-SHA ECDHE-RSA-AES256-SHA
ECDHE-RSA-AES128-SHA256 ECDHE-RSA-AES256-SHA384 ECDHE-ECDSA-AES128-SHA ECDHE-ECDSA-AES256-SHA384 AES128-GCM-SHA256
AES256-GCM-SHA384 ECDHE-RSA-AES128-GCM-SHA256 ECDHE-RSA-AES256-GCM-SHA384 ECDHE-ECDSA-AES128-GCM-SHA256
ECDHE-ECDSA-AES256-GCM-SHA384 AES128-CCM AES256-CCM AES128-CCM8 AES256-CCM8 ECDHE-ECDSA-AES128-CCM ECDHE-ECDSA-AES256-CCM
ECDHE-ECDSA-AES128-CCM8 ECDHE-ECDSA-AES256-CCM8 ECDHE-RSA-CHACHA20-POLY1305 ECDHE-ECDSA-CHACHA20-POLY1305""".split()
TLS13 = """TLS_AES_128_GCM_SHA256 TLS_AES_256_GCM_SHA384 TLS_CHACHA20_POLY1305_SHA256 TLS_AES_128_CCM_SHA256
TLS_AES_128_CCM_8_SHA256""".split()
OLD = "AES128-SHA AES256-SHA ECDHE-RSA-AES128-SHA ECDHE-ECDSA-AES256-SHA".split()
# OpenSSH's ciphers that are OpenSSL's.
SSH = "aes128-ctr aes192-ctr aes256-ctr aes128-gcm@openssh.com aes256-gcm@openssh.com".split()

# Behind the names of checks, while the keys of the provider's ciphers are in guarded memory.
keys = ""


def place(ours_serves):
    return ("server" if ours_serves else "client") + keys


class Client:
    """`openssl s_client`, at whose standard input and output this is."""

    def __init__(self, arguments, ours):
        argv = ["openssl", "s_client", "-connect", "127.0.0.1:4433", *arguments]
        self.process = subprocess.Popen(argv, env=environment(ours), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)
        self.seen = b""

    def expect(self, words):
        """Reads until these words have come, and takes all up to there."""
        end = time.monotonic() + LIMIT
        while words not in self.seen:
            left = end - time.monotonic()
            ready = left > 0 and select.select([self.process.stdout], [], [], left)[0]
            need(ready, f"{words!r} does not come: {self.seen[-2000:]!r}")
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            need(more, f"ended before {words!r}: {self.seen[-2000:]!r}")
            self.seen += more
        before, self.seen = self.seen.split(words, 1)
        return before + words

    def say(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def reversed(self, line):
        """A line that the server sends back from its end to its front."""
        self.say(line)
        self.expect(line[::-1])

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(LIMIT)
        finally:
            self.process.kill()
            self.process.stdout.close()


def talk(version, suite, ours):
    """A connection of its own, and one that resumes its session."""
    session = PLACE / "session"
    session.unlink(missing_ok=True)
    choice = ["-ciphersuites", suite] if version == "tls1_3" else ["-cipher", f"{suite}:@SECLEVEL=0"]
    for is_resumed in (False, True):
        client = Client([f"-{version}", *choice, *(["-sess_in", session] if is_resumed else ["-sess_out", session])], ours)
        try:
            said = client.expect(b"Verify return code")
            need(f"Cipher is {suite}\n".encode() in said, f"another suite: {said!r}")
            need((b"Reused, " in said) == is_resumed, f"resumed: {not is_resumed}")
            client.reversed(b"the first line")
            client.reversed(b"x" + b"0123456789" * 300)
            if version == "tls1_3":
                for command in (b"K", b"k"):
                    client.say(command)
                    client.expect(b"KEYUPDATE")
                    client.reversed(b"behind a key update " + command)
            else:
                client.say(b"R")
                client.expect(b"RENEGOTIATING")
                client.reversed(b"behind a renegotiation")
            need(has_module(client.process.pid) == ours, "the provider is where it should not be, or not where it should")
            if not is_resumed:
                within("a session", lambda: session.exists() and session.stat().st_size > 0)
        finally:
            client.close()


def certificates():
    for kind, key in (("rsa", ["rsa:2048"]), ("ec", ["ec", "-pkeyopt", "ec_paramgen_curve:P-256"])):
        run(["openssl", "req", "-x509", "-newkey", *key, "-nodes", "-keyout", PLACE / f"{kind}.key",
             "-out", PLACE / f"{kind}.pem", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
             "-days", "2"])
    (PLACE / "both.pem").write_bytes((PLACE / "rsa.pem").read_bytes() + (PLACE / "rsa.key").read_bytes())


def openssl(ours_serves):
    where = place(ours_serves)
    argv = ["openssl", "s_server", "-accept", "127.0.0.1:4433", "-rev", "-client_renegotiation", "-min_protocol", "TLSv1",
            "-cipher", "ALL:@SECLEVEL=0", "-ciphersuites", ":".join(TLS13), "-cert", PLACE / "rsa.pem",
            "-key", PLACE / "rsa.key", "-dcert", PLACE / "ec.pem", "-dkey", PLACE / "ec.key"]
    with serving(argv, ours_serves, 4433):
        for version, suites in (("tls1", OLD), ("tls1_1", OLD), ("tls1_2", TLS12), ("tls1_3", TLS13)):
            for suite in suites:
                check(f"{version} {suite}, Sealane at the {where}", lambda: talk(version, suite, not ours_serves))


def ssh(ours_serves):
    where = place(ours_serves)
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "user"):
        if not (PLACE / name).exists():
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", PLACE / name])
    (PLACE / "keys").write_bytes((PLACE / "user.pub").read_bytes())
    (PLACE / "sshd_config").write_text(
        f"Port 2222\nListenAddress 127.0.0.1\nHostKey {PLACE}/host\nAuthorizedKeysFile {PLACE}/keys\nPermitRootLogin yes\n"
        f"StrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\nRekeyLimit 1M\nLogLevel VERBOSE\n")
    options = ["-F", "none", "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR",
               "-o", "RekeyLimit=1M", "-o", "MACs=hmac-sha2-256", "-i", PLACE / "user"]
    big = PLACE / "big"
    with serving(["/usr/sbin/sshd", "-D", "-e", "-f", PLACE / "sshd_config"], ours_serves, 2222) as server:
        if keys and ours_serves:
            check("sshd's guarded memory", lambda: need(has_guarded(server.pid), "it has none"))
        for cipher in SSH:
            def login():
                argv = ["ssh", *options, "-c", cipher, "-p", "2222", "root@127.0.0.1", f"head -c 20000000 {big}"]
                text = run(argv, not ours_serves)
                need(text == big.read_bytes()[:20000000], "another text")
            check(f"ssh by {cipher}, 20 MB with new keys at each MB, Sealane at the {where}", login)

            def copy():
                run(["scp", *options, "-c", cipher, "-P", "2222", big, f"root@127.0.0.1:{PLACE}/copied"], not ours_serves)
                need((PLACE / "copied").read_bytes() == big.read_bytes(), "another text")
            check(f"scp by {cipher}, 100 MB, Sealane at the {where}", copy)


def fetch(port, ours, *options):
    """curl gets a file of 20 MB whole."""
    text = run(["curl", "-sS", "--fail", "--cacert", PLACE / "rsa.pem", *options, f"https://localhost:{port}/big"], ours)
    need(text == (PLACE / "files/big").read_bytes(), "another text")


# A connection by Python's ssl, of which many stay open at once.
MANY = """
import socket, ssl, sys
port, count, module = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
context = ssl.create_default_context(cafile="/srv/test/rsa.pem")
open_ones = []
for i in range(count):
    plain = socket.create_connection(("127.0.0.1", port), timeout=120)
    open_ones.append(context.wrap_socket(plain, server_hostname="localhost"))
for turn in range(2):
    for one in open_ones:
        one.sendall(b"GET /small HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
    for one in open_ones:
        text = b""
        while not text.endswith(b"a small file"):
            more = one.recv(65536)
            assert more, text
            text += more
print(module in open("/proc/self/maps").read())
"""


def nginx_configuration():
    (PLACE / "nginx.conf").write_text(f"""
daemon off;
worker_processes 2;
worker_rlimit_nofile 8192;
pid {PLACE}/nginx.pid;
error_log {PLACE}/nginx.error;
events {{ worker_connections 3000; }}
http {{
  access_log off;
  keepalive_timeout 300s;
  server {{
    listen 127.0.0.1:8443 ssl;
    listen 127.0.0.1:8080;
    ssl_certificate {PLACE}/rsa.pem;
    ssl_certificate_key {PLACE}/rsa.key;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ciphers ALL:@SECLEVEL=0;
    root {PLACE}/files;
  }}
}}
""")


def nginx(ours_serves):
    where = place(ours_serves)
    with serving(["nginx", "-c", PLACE / "nginx.conf", "-p", PLACE], ours_serves, 8443) as server:
        def same(*options):
            fetch(8443, not ours_serves, *options)
        for suite in ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305", "ECDHE-RSA-AES256-SHA384"):
            check(f"curl and nginx, TLS 1.2 {suite}, Sealane at the {where}",
                  lambda: same("--tls-max", "1.2", "--ciphers", suite))
        for suite in TLS13[:3]:
            check(f"curl and nginx, TLS 1.3 {suite}, Sealane at the {where}", lambda: same("--tls13-ciphers", suite))

        def many():
            said = run(["python3", "-c", MANY, "8443", "1000", MODULE], not ours_serves)
            need(said.decode().strip() == str(not ours_serves), "Python's ssl has the wrong provider")
        check(f"nginx and Python's ssl, 1,000 connections at once, Sealane at the {where}", many)

        def workers():
            return set(run(["pgrep", "-P", str(server.pid)]).split())

        def reload():
            before = workers()
            server.send_signal(signal.SIGHUP)
            within("other workers", lambda: workers() and not workers() & before)
            need(all(has_module(int(pid)) == ours_serves for pid in workers()), "a worker has the wrong provider")
            same()
            if keys and ours_serves:
                need(any(has_guarded(int(pid)) for pid in workers()), "no worker has guarded memory")
        check(f"nginx after a reload, Sealane at the {where}", reload)
        if ours_serves:
            haproxy()


def haproxy():
    """In front of nginx, at which both ends of it are of TLS."""
    (PLACE / "haproxy.cfg").write_text(f"""
global
  maxconn 1000
defaults
  mode http
  timeout connect 60s
  timeout client 60s
  timeout server 60s
listen tls
  bind 127.0.0.1:9443 ssl crt {PLACE}/both.pem
  server nginx 127.0.0.1:8443 ssl verify required ca-file {PLACE}/rsa.pem
""")
    with serving(["/usr/sbin/haproxy", "-f", PLACE / "haproxy.cfg", "-db"], True, 9443) as server:
        for suite in TLS13[:3]:
            check(f"curl, HAProxy and nginx, {suite}, Sealane in HAProxy and nginx{keys}",
                  lambda: fetch(9443, False, "--tls13-ciphers", suite))
        if keys:
            check("HAProxy's guarded memory", lambda: need(has_guarded(server.pid), "it has none"))


# hashlib and hmac beside Python's own, which are not OpenSSL's.
HASHES = """
import hashlib, hmac, sys
import _sha1, _md5
try:
    from _sha256 import sha256
    from _sha512 import sha512
except ImportError:
    from _sha2 import sha256, sha512
for data in (b"", b"abc", bytes(range(256)) * 999):
    for name, own in (("sha256", sha256), ("sha512", sha512), ("sha1", _sha1.sha1), ("md5", _md5.md5)):
        assert hashlib.new(name, data).digest() == own(data).digest(), name
        running = hashlib.new(name)
        for at in range(0, len(data), 1000):
            running.update(data[at:at + 1000])
            running = running.copy()
        assert running.digest() == own(data).digest(), name
        key = b"key" * 40
        block = own().block_size
        short = own(key).digest() if len(key) > block else key
        pads = [bytes(b ^ pad for b in short.ljust(block, b"\\0")) for pad in (0x36, 0x5c)]
        expected = own(pads[1] + own(pads[0] + data).digest()).digest()
        assert hmac.digest(key, data, name) == expected, name
        assert hmac.new(key, data, name).digest() == expected, name
assert hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 4096).hex().startswith("c5e478d59288c841aa530db6845c4c8d")
assert sys.argv[1] in open("/proc/self/maps").read()
"""


def postgresql(ours_serves):
    where = place(ours_serves)
    folder = PLACE / f"postgres-{where}"
    programs = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
    folder.mkdir()
    for kind in ("pem", "key"):
        (folder / f"rsa.{kind}").write_bytes((PLACE / f"rsa.{kind}").read_bytes())
    run(["chown", "-R", "postgres:postgres", folder])
    run(["chmod", "600", folder / "rsa.key"])
    pathlib.Path("/var/run/postgresql").mkdir(parents=True, exist_ok=True)
    run(["chown", "postgres:postgres", "/var/run/postgresql"])
    as_postgres = {"user": "postgres", "group": "postgres", "extra_groups": []}
    run([programs / "initdb", "-D", folder / "data", "--auth=trust"], **as_postgres)
    argv = [programs / "postgres", "-D", folder / "data", "-h", "127.0.0.1", "-p", "5433", "-c", "ssl=on", "-c",
            f"ssl_cert_file={folder}/rsa.pem", "-c", f"ssl_key_file={folder}/rsa.key"]
    with serving(argv, ours_serves, 5433, **as_postgres):
        def query():
            target = f"host=127.0.0.1 port=5433 user=postgres dbname=postgres sslmode=verify-full sslrootcert={PLACE}/rsa.pem"
            said = run(["psql", target, "-At", "-c", "select cipher from pg_stat_ssl where pid = pg_backend_pid()", "-c",
                        "select repeat('0123456789', 1000) from generate_series(1, 2000)"], not ours_serves).decode().splitlines()
            need(re.match("TLS_AES|TLS_CHACHA20", said[0]), f"no TLS 1.3: {said[0]}")
            need(said[1:] == ["0123456789" * 1000] * 2000, "another text")
        check(f"PostgreSQL and psql, 20 MB, Sealane at the {where}", query)


def has_guarded(pid):
    return "/secretmem" in pathlib.Path(f"/proc/{pid}/maps").read_text()


def guarded():
    """Servers and clients with their ciphers' keys in guarded memory, by the shipped example with that line."""
    global keys
    line = "# sealane-keys = guarded"
    text = pathlib.Path(openssl_inside.OURS).read_text()
    need(text.count(line) == 1, "the example has no such line")
    (PLACE / "guarded.cnf").write_text(text.replace(line, line.removeprefix("# ")))
    openssl_inside.OURS, keys = str(PLACE / "guarded.cnf"), ", its keys guarded"
    for test in (ssh, nginx):
        for ours_serves in (True, False):
            check(f"{test.__name__} with Sealane at the {place(ours_serves)}", lambda: test(ours_serves))


def main():
    sys.stdout.reconfigure(line_buffering=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    PLACE.mkdir()
    # Those that run as other users read certificates there.
    PLACE.chmod(0o755)
    (PLACE / "files").mkdir()
    (PLACE / "big").write_bytes(os.urandom(100_000_000))
    (PLACE / "files/big").write_bytes((PLACE / "big").read_bytes()[:20_000_000])
    (PLACE / "files/small").write_text("a small file")
    check("certificates", certificates)
    offered = ["openssl", "list", "-providers"]
    check("the shipped example loads the provider", lambda: need(b"Sealane provider" in run(offered, True), "it is not there"))
    nginx_configuration()
    for test in (openssl, ssh, nginx, postgresql):
        for ours_serves in (True, False):
            check(f"{test.__name__} with Sealane at the {'server' if ours_serves else 'client'}", lambda: test(ours_serves))
    check("Python's hashlib and hmac", lambda: run(["python3", "-c", HASHES, MODULE], True))
    check("guarded keys", guarded)
    return openssl_inside.failed


if __name__ == "__main__":
    sys.exit(main())
