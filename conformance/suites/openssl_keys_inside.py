#!/usr/bin/env python3
"""Programs whose private keys are the keeper's; openssl_programs.sh runs this on a machine of its own. Clients have OpenSSL's default
provider alone. A server that ends a handshake has to say so by an alert: a process that crashes is no refusal. Writes PASS or FAIL for
each check. Exit status: 0 all passed, 1 not."""
import contextlib
import glob
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import openssl_inside
from openssl_inside import LIMIT, PLACE, check, environment, has_module, need, run, serving, within

SOCKET = "/run/sealane-keeper/socket"
HOME = pathlib.Path("/var/lib/sealane-keeper")
WORKER = pwd.getpwnam("www-data").pw_uid
NOBODY = pwd.getpwnam("nobody").pw_uid
# Names of keys, their algorithms, and the ports of nginx's servers with them.
KEYS = {"rsa": ("rsa-2048", 8441), "ec": ("ec-p256", 8442), "ed": ("ed25519", 8443)}
FILE_PORT, ROOTS_PORT, PLAIN_PORT = 8444, 8445, 8080
# A request of a keeper that hangs ends after 10 s, and the process then asks none for 2 s: several of these, on a busy machine.
HANG_S = 120
REST_S = 2
# Handshakes of each port, one after the other, that show that it is served again.
MANY = 20


class Keeper:
    """`sealane keeper` as a user of its own."""

    def __init__(self):
        user = pwd.getpwnam("sealane-keeper")
        self.who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        for folder, mode in ((pathlib.Path(SOCKET).parent, 0o755), (HOME, 0o700)):
            folder.mkdir(mode=mode)
            os.chown(folder, user.pw_uid, user.pw_gid)
        secret = HOME / "passphrase"
        secret.write_text("of the suite\n")
        secret.chmod(0o600)
        os.chown(secret, user.pw_uid, user.pw_gid)
        self.configuration = PLACE / "keeper.toml"
        self.configuration.write_text(f'store = "{HOME}/keys"\npassphrase-file = "{secret}"\nadmin-users = [0]\n')
        self.log = PLACE / "keeper.log"
        self.process = None

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(["sealane", "keeper", "--config", self.configuration], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, **self.who)

        def serves():
            need(self.process.poll() is None, f"the keeper has ended: {self.said()[-2000:]}")
            # 1: there are no keys yet.
            return subprocess.run(["sealane", "key", "list"], capture_output=True).returncode in (0, 1)
        within("the keeper serves", serves)

    def end(self, by=signal.SIGTERM):
        self.process.send_signal(by)
        self.process.wait(LIMIT)

    def said(self):
        return self.log.read_text(errors="replace")


def key(*arguments):
    return run(["sealane", "key", *arguments])


def openssl(*arguments):
    return run(["openssl", *arguments], True)


def issue(name):
    """A certificate of a key for this machine, by the keeper's certificate authority."""
    openssl("req", "-new", "-key", f"sealane://{name}", "-subj", f"/CN={name}", "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", PLACE / "request")
    new = PLACE / f"{name}.new"
    openssl("x509", "-req", "-in", PLACE / "request", "-CA", PLACE / "ca.pem", "-CAkey", "sealane://ca", "-copy_extensions", "copy",
            "-days", "2", "-out", new)
    new.replace(PLACE / f"{name}.pem")


def certificates():
    key("generate", "ca", "--algorithm", "rsa-2048")
    openssl("req", "-x509", "-key", "sealane://ca", "-subj", "/CN=authority", "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature", "-days", "2", "-out", PLACE / "ca.pem")
    for name, (algorithm, _) in KEYS.items():
        key("generate", name, "--algorithm", algorithm, "--user", "0", "--user", str(WORKER))
        issue(name)
    # One that is nobody's but root's, and one of another daemon.
    for name, users in (("roots", [0]), ("vpn", [0, NOBODY])):
        key("generate", name, "--algorithm", "ec-p256", *(word for user in users for word in ("--user", str(user))))
        issue(name)
    openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", PLACE / "file.key", "-subj",
            "/CN=file", "-addext", "subjectAltName=DNS:localhost", "-out", PLACE / "request")
    openssl("x509", "-req", "-in", PLACE / "request", "-CA", PLACE / "ca.pem", "-CAkey", "sealane://ca", "-copy_extensions", "copy",
            "-days", "2", "-out", PLACE / "file.pem")


def handshake(port, version=None, patience_s=LIMIT):
    """A connection of its own by OpenSSL's default provider: the certificate's serial number, and the body of the answer."""
    context = ssl.create_default_context(cafile=PLACE / "ca.pem")
    if version:
        context.minimum_version = context.maximum_version = version
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as plain, \
            context.wrap_socket(plain, server_hostname="localhost") as one:
        serial = one.getpeercert()["serialNumber"]
        one.sendall(b"GET /small HTTP/1.0\r\nHost: localhost\r\n\r\n")
        text = b""
        while more := one.recv(65536):
            text += more
    need(text.startswith(b"HTTP/1.1 200"), text)
    return serial, text.split(b"\r\n\r\n", 1)[1].decode()


def serves(port, version=None, patience_s=LIMIT):
    need(handshake(port, version, patience_s)[1] == "a small file", "another text")


def is_serving(port, patience_s=LIMIT):
    """Whether the server serves; False if it ends the handshake by an alert. A connection that ends without one, or that is left open
    until the client's patience ends, is an error."""
    try:
        serves(port, patience_s=patience_s)
        return True
    except ssl.SSLError as error:
        if "_ALERT_" not in (error.reason or ""):
            raise
        return False


def fails(port, patience_s=LIMIT):
    need(not is_serving(port, patience_s), f"port {port}: the handshake succeeds")


def serve_again(ports):
    for port in ports:
        for _ in range(MANY):
            serves(port)


def nginx_configuration(workers):
    servers = [(port, f"store:sealane://{name}", name) for name, (_, port) in KEYS.items()]
    servers += [(ROOTS_PORT, "store:sealane://roots", "roots"), (FILE_PORT, PLACE / "file.key", "file")]
    blocks = "".join(f"""
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {PLACE}/{name}.pem;
    ssl_certificate_key {uri};
    location = /who {{ default_type text/plain; return 200 $ssl_client_s_dn; }}
  }}""" for port, uri, name in servers)
    (PLACE / "nginx.conf").write_text(f"""
daemon off;
user www-data;
worker_processes {workers};
pid {PLACE}/nginx.pid;
error_log {PLACE}/nginx.error;
env OPENSSL_CONF;
events {{ worker_connections 1000; }}
http {{
  access_log off;
  ssl_session_cache off;
  ssl_session_tickets off;
  ssl_protocols TLSv1.2 TLSv1.3;
  ssl_client_certificate {PLACE}/ca.pem;
  ssl_verify_client optional;
  root {PLACE}/files;{blocks}
  server {{ listen 127.0.0.1:{PLAIN_PORT}; }}
}}
""")


class Load:
    """Clients that connect without a pause, from `with` to its end; what each port's handshakes came to."""

    def __init__(self, ports):
        self.ports = ports
        self.counts = {(port, is_good): 0 for port in ports for is_good in (True, False)}
        self.wrong = []
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(port,)) for port in ports]

    def client(self, port):
        while not self.ends.is_set():
            try:
                self.counts[port, is_serving(port)] += 1
            except Exception as error:
                self.wrong.append(f"port {port}: {error!r}")
                return

    def wait(self, what, is_done):
        """Waits until this is so of each port's good and failed handshakes since now."""
        before = dict(self.counts)

        def is_so():
            need(not self.wrong, self.wrong)
            return all(is_done(port, *(self.counts[port, is_good] - before[port, is_good] for is_good in (True, False)))
                       for port in self.ports)
        within(what, is_so)

    def go_on(self):
        """All handshakes are good from now on, but for one of each port that is under way."""
        before = self.failed()
        self.wait("handshakes of each port", lambda _, good, failed: good >= MANY or failed > 1)
        late = {port: failed - before[port] for port, failed in self.failed().items() if failed - before[port] > 1}
        need(not late, f"ports, and handshakes that fail: {late}")

    def failed(self):
        return {port: self.counts[port, False] for port in self.ports}

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        for thread in self.threads:
            thread.join()


def nginx(keeper):
    ports = [port for _, port in KEYS.values()]
    error_log = PLACE / "nginx.error"
    with serving(["nginx", "-c", PLACE / "nginx.conf", "-p", PLACE], True, FILE_PORT) as server:
        def workers():
            return set(run(["pgrep", "-P", str(server.pid)]).split())

        @contextlib.contextmanager
        def same_workers():
            before = workers()
            yield
            need(workers() == before, f"other workers: {workers()}, before {before}")

        def reload():
            before = workers()
            server.send_signal(signal.SIGHUP)
            within("other workers", lambda: workers() and not workers() & before)
            need(all(has_module(int(pid)) for pid in workers()), "a worker lacks the provider")

        for name, (algorithm, port) in KEYS.items():
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                check(f"nginx with {algorithm} in the keeper, {version.name}", lambda: serves(port, version))

        def asks():
            for name in KEYS:
                need(f"user {WORKER}: sign '{name}'" in keeper.said(), f"no signature by {name}: {keeper.said()[-2000:]}")
        check("the keeper signs for the workers' user", asks)

        def not_the_workers():
            with same_workers():
                fails(ROOTS_PORT)
            within("an audit", lambda: f"user {WORKER}: sign 'roots' refused: no-key" in keeper.said())
            within("nginx's own words", lambda: "no such key" in error_log.read_text())
        check("with a key that is only root's nginx starts, and its workers are refused", not_the_workers)

        def curl():
            for name in KEYS:
                said = run(["curl", "-sS", "--fail", "--cacert", PLACE / "ca.pem", "--cert", PLACE / f"{name}.pem", "--key",
                            f"sealane://{name}", "--key-type", "PROV", "--engine", "sealane", f"https://localhost:{ports[0]}/who"],
                           True)
                need(said == f"CN={name}".encode(), said)
        check("curl's certificate of a client, --key-type PROV --engine sealane", curl)

        check("nginx after a reload", lambda: (reload(), [serves(port) for port in ports]))

        def rotate():
            port = KEYS["ec"][1]
            before = handshake(port)[0]
            key("rotate", "ec")
            need(handshake(port)[0] == before, "another certificate before the reload")
            issue("ec")
            reload()
            after = handshake(port)[0]
            need(after != before, "the former certificate")
            ec = next(one for one in json.loads(key("list", "--json")) if one["name"] == "ec")
            need([version["number"] for version in ec["versions"]] == [1, 2], ec)
        check("a key is rotated, and nginx goes on with the new version and its certificate after a reload", rotate)

        # From here on there is one worker, so that each handshake tells how the one that met the outage goes on.
        nginx_configuration(1)
        reload()

        def restarts():
            with Load([*ports, FILE_PORT]) as load:
                with same_workers():
                    load.go_on()
                    for way in (signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
                        keeper.end(way)
                        load.wait("failed handshakes, and those by a file's key",
                                  lambda port, good, failed: good > 0 if port == FILE_PORT else failed > 0)
                        keeper.start()
                        load.go_on()
                reload()
                load.go_on()
            need(not load.wrong, load.wrong)
            need(not load.counts[FILE_PORT, False], f"{load.counts[FILE_PORT, False]} handshakes by a file's key failed")
        check("the keeper is restarted under load, handshakes fail and then all work again, and those by a file's key always do", restarts)

        def without():
            with same_workers():
                keeper.end(signal.SIGKILL)
                try:
                    for port in ports:
                        fails(port)
                        serves(FILE_PORT)
                    # A master that cannot load a key goes on with what it has.
                    lines = error_log.read_text().count("[emerg]")
                    server.send_signal(signal.SIGHUP)
                    within("the refused reload", lambda: error_log.read_text().count("[emerg]") > lines)
                    serves(FILE_PORT)
                finally:
                    keeper.start()
                serve_again([*ports, FILE_PORT])
            reload()
            serve_again([*ports, FILE_PORT])
        check("the keeper is killed, handshakes fail, a reload is refused, a file's key serves, then all is well", without)

        def hung():
            with same_workers():
                keeper.process.send_signal(signal.SIGSTOP)
                try:
                    # One that waits for the keeper, beside one by a file's key, which may have to wait as long.
                    outcomes = {}
                    waits = threading.Thread(target=lambda: outcomes.update(good=is_serving(ports[0], HANG_S)))
                    waits.start()
                    serves(FILE_PORT, patience_s=HANG_S)
                    waits.join()
                    need(outcomes == {"good": False}, f"the handshake by the keeper's key: {outcomes}")
                    for port in ports:
                        fails(port, HANG_S)
                        serves(FILE_PORT, patience_s=HANG_S)
                finally:
                    keeper.process.send_signal(signal.SIGCONT)
                time.sleep(REST_S + 1)
                serve_again([*ports, FILE_PORT])
        check("the keeper hangs, handshakes fail in time, a file's key serves, then all is well", hung)
        stunnel(keeper)

        def no_crash():
            need("exited on signal" not in error_log.read_text(), error_log.read_text()[-2000:])
        check("no worker of nginx has crashed", no_crash)


def stunnel(keeper):
    """In front of nginx, as another user than the one who starts it; by keys that nobody else uses, whose audits tell who signs."""
    for algorithm, _ in KEYS.values():
        name = f"tunnel-{algorithm}"
        (PLACE / "stunnel.conf").write_text(
            f"foreground = yes\npid =\nsetuid = www-data\n[web]\naccept = 127.0.0.1:9444\nconnect = 127.0.0.1:{PLAIN_PORT}\n"
            f"cert = {PLACE}/{name}.pem\nkey = sealane://{name}\n")

        def serve():
            key("generate", name, "--algorithm", algorithm, "--user", "0", "--user", str(WORKER))
            issue(name)
            with serving(["stunnel4", PLACE / "stunnel.conf"], True, 9444):
                serves(9444)
            need(f"user {WORKER}: sign '{name}'" in keeper.said(), f"no signature of its user: {keeper.said()[-2000:]}")
        check(f"stunnel with {algorithm} in the keeper", serve)


def openvpn(keeper):
    """Both ends have keys of the keeper; the server gives up root's rights."""
    ours = [("--ca", PLACE / "ca.pem"), ("--dev", "null"), ("--verb", "3")]
    ours = [word for option in ours for word in option]
    log = PLACE / "openvpn-client.log"
    with serving(["openvpn", *ours, "--proto", "tcp-server", "--tls-server", "--dh", "none", "--cert", PLACE / "vpn.pem", "--key",
                  "sealane://vpn", "--local", "127.0.0.1", "--port", "1194", "--mode", "server", "--user", "nobody", "--group",
                  "nogroup"], True, 1194):
        with open(log, "wb") as out:
            client = subprocess.Popen(["openvpn", *ours, "--proto", "tcp-client", "--client", "--cert", PLACE / "rsa.pem", "--key",
                                       "sealane://rsa", "--remote", "127.0.0.1", "1194", "--nobind"], env=environment(True),
                                      stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            within("the client is connected",
                   lambda: b"Initialization Sequence Completed" in log.read_bytes() or client.poll() is not None)
            need(client.poll() is None, log.read_text()[-2000:])
            need(f"user {NOBODY}: sign 'vpn'" in keeper.said(), keeper.said()[-2000:])
        finally:
            client.terminate()
            client.wait(LIMIT)


AUTHORITY = f"""
[ca]
default_ca = authority
[authority]
new_certs_dir = {PLACE}/ca
database = {PLACE}/ca/index
serial = {PLACE}/ca/serial
default_md = sha256
policy = policy
default_days = 2
default_crl_days = 2
[policy]
commonName = supplied
[tsa]
default_tsa = stamps
[stamps]
serial = {PLACE}/ca/serial
default_policy = 1.2.3
digests = sha256
signer_digest = sha256
"""


def verifies(words, *arguments):
    """A check by openssl has this outcome, which it writes to stderr."""
    done = subprocess.run(["openssl", *arguments], env=environment(False), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
    need(done.returncode == 0 and words in done.stderr.splitlines(), f"{arguments}: status {done.returncode}: {done.stderr}")
    return done.stdout


def authority():
    """A certificate authority by openssl's commands: certificates, lists of revoked ones, answers of OCSP."""
    folder = PLACE / "ca"
    folder.mkdir()
    (folder / "index").touch()
    (folder / "serial").write_text("01\n")
    (folder / "cnf").write_text(AUTHORITY)
    ours = ["-config", folder / "cnf", "-cert", PLACE / "ca.pem", "-keyfile", "sealane://ca"]
    openssl("req", "-new", "-key", "sealane://ec", "-subj", "/CN=issued", "-out", PLACE / "request")
    openssl("ca", "-batch", "-notext", *ours, "-in", PLACE / "request", "-out", PLACE / "issued.pem")
    run(["openssl", "verify", "-CAfile", PLACE / "ca.pem", PLACE / "issued.pem"])
    answer = PLACE / "answer"
    for reason in ("good", "revoked"):
        if reason == "revoked":
            openssl("ca", *ours, "-revoke", PLACE / "issued.pem")
        openssl("ocsp", "-index", folder / "index", "-CA", PLACE / "ca.pem", "-rsigner", PLACE / "ca.pem", "-rkey", "sealane://ca",
                "-issuer", PLACE / "ca.pem", "-cert", PLACE / "issued.pem", "-respout", answer, "-VAfile", PLACE / "ca.pem",
                "-no_nonce")
        said = verifies(b"Response verify OK", "ocsp", "-respin", answer, "-VAfile", PLACE / "ca.pem", "-issuer", PLACE / "ca.pem",
                        "-cert", PLACE / "issued.pem")
        need(f": {reason}\n".encode() in said, said)
    openssl("ca", *ours, "-gencrl", "-out", PLACE / "crl.pem")
    verifies(b"verify OK", "crl", "-in", PLACE / "crl.pem", "-CAfile", PLACE / "ca.pem", "-noout")


def commands():
    mail, text = PLACE / "mail", PLACE / "files/small"
    openssl("smime", "-sign", "-in", text, "-signer", PLACE / "rsa.pem", "-inkey", "sealane://rsa", "-out", mail)
    run(["openssl", "smime", "-verify", "-in", mail, "-CAfile", PLACE / "ca.pem", "-out", "/dev/null"])
    run(["openssl", "smime", "-encrypt", "-aes128", "-in", text, "-out", mail, PLACE / "rsa.pem"])
    opened = openssl("smime", "-decrypt", "-in", mail, "-recip", PLACE / "rsa.pem", "-inkey", "sealane://rsa")
    need(opened.split() == text.read_bytes().split(), opened)
    openssl("spkac", "-key", "sealane://ec", "-digest", "sha256", "-challenge", "x", "-out", PLACE / "spkac")
    run(["openssl", "spkac", "-in", PLACE / "spkac", "-verify", "-noout"])
    openssl("req", "-new", "-key", "sealane://ec", "-subj", "/CN=its own", "-out", PLACE / "request")
    for option in ("-key", "-signkey"):
        openssl("x509", "-req", "-in", PLACE / "request", option, "sealane://ec", "-out", PLACE / "own.pem")
        run(["openssl", "verify", "-CAfile", PLACE / "own.pem", PLACE / "own.pem"])
    openssl("req", "-x509", "-CA", PLACE / "ca.pem", "-CAkey", "sealane://ca", "-key", "sealane://ed", "-subj", "/CN=by req", "-out",
            PLACE / "by-req.pem")
    run(["openssl", "verify", "-CAfile", PLACE / "ca.pem", PLACE / "by-req.pem"])


def takes_files_only(words, argv, **more):
    """A program takes a key's file, and not the name of a key, of which it says these words. `argv` makes its command line of a
    certificate and a key."""
    run(argv(PLACE / "file.pem", PLACE / "file.key"), True, **more)
    refuses(words, argv(PLACE / "ec.pem", "sealane://ec"), **more)


def refuses(words, argv, **more):
    done = subprocess.run(argv, env=environment(True), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, **more)
    said = (done.stdout + done.stderr).decode(errors="replace")
    need(done.returncode != 0 and words in said, f"{argv}: status {done.returncode}: {said[-2000:]}")


def haproxy(certificate, key):
    (PLACE / "haproxy.cfg").write_text(f"defaults\n  timeout connect 9s\n  timeout client 9s\n  timeout server 9s\n"
                                       f"crt-store\n  load crt {certificate} key {key} alias web\n"
                                       f"listen tls\n  bind 127.0.0.1:9443 ssl crt @/web\n  server one 127.0.0.1:{PLAIN_PORT}\n")
    return ["haproxy", "-c", "-f", PLACE / "haproxy.cfg"]


def apache(certificate, key):
    modules = "/usr/lib/apache2/modules"
    (PLACE / "apache.conf").write_text(
        "".join(f"LoadModule {name}_module {modules}/mod_{name}.so\n" for name in ("mpm_event", "ssl", "authz_core"))
        + f"PidFile {PLACE}/apache.pid\nErrorLog {PLACE}/apache.error\nListen 127.0.0.1:9445\nServerName localhost\nSSLEngine on\n"
        f"SSLCertificateFile {certificate}\nSSLCertificateKeyFile {key}\n")
    return ["apache2", "-t", "-f", PLACE / "apache.conf"]


def python(certificate, key):
    return ["python3", "-c", f"import ssl\nssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain('{certificate}', '{key}')"]


def sshd(_, key):
    (PLACE / "sshd_config").write_text(f"HostKey {key}\n")
    return ["/usr/sbin/sshd", "-t", "-f", PLACE / "sshd_config"]


def stamps(_, key):
    signer = PLACE / "stamps.pem"
    openssl("req", "-x509", "-key", key, "-subj", "/CN=stamps", "-addext", "extendedKeyUsage=critical,timeStamping", "-out", signer)
    return ["openssl", "ts", "-reply", "-config", PLACE / "ca/cnf", "-queryfile", PLACE / "query", "-signer", signer, "-inkey", key,
            "-out", PLACE / "stamped"]


def postgresql():
    programs = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
    data, own = PLACE / "postgres", PLACE / "postgres.key"
    data.mkdir()
    shutil.copy(PLACE / "file.key", own)
    run(["chown", "postgres:postgres", data, own])
    as_postgres = {"user": "postgres", "group": "postgres", "extra_groups": []}
    run([programs / "initdb", "-D", data, "--auth=trust"], **as_postgres)

    def argv(certificate, key):
        return [programs / "postgres", "-D", data, "-h", "127.0.0.1", "-p", "5432", "-k", "/tmp", "-c", "ssl=on", "-c",
                f"ssl_cert_file={certificate}", "-c", f"ssl_key_file={key}"]
    with serving(argv(PLACE / "file.pem", own), True, 5432, **as_postgres):
        pass
    refuses("could not access private key file", argv(PLACE / "ec.pem", "sealane://ec"), **as_postgres)


def those_without():
    """Programs that take a file's path where the key is named, and nothing else."""
    pathlib.Path("/run/sshd").mkdir(exist_ok=True)
    openssl("ts", "-query", "-data", PLACE / "files/small", "-sha256", "-out", PLACE / "query")
    for what, words, argv in (
            ("HAProxy takes no URI", "'sealane://ec' cannot be read", haproxy),
            ("Apache takes no URI of ours", "does not exist or is empty", apache),
            ("Python's load_cert_chain takes no URI", "FileNotFoundError", python),
            ("sshd takes no URI", "no hostkeys available", sshd),
            ("openssl ts takes no URI", "cannot load private key", stamps)):
        check(what, lambda: takes_files_only(words, argv))
    check("PostgreSQL takes no URI", postgresql)


def main():
    sys.stdout.reconfigure(line_buffering=True)
    PLACE.mkdir()
    # Those that run as other users read certificates there.
    PLACE.chmod(0o755)
    (PLACE / "files").mkdir()
    (PLACE / "files/small").write_text("a small file")
    run(["useradd", "--system", "--no-create-home", "sealane-keeper"])
    keeper = Keeper()
    keeper.start()
    try:
        check("certificates by keys that the keeper has made", certificates)
        nginx_configuration(2)
        check("nginx", lambda: nginx(keeper))
        check("OpenVPN, with keys of the keeper at both ends", lambda: openvpn(keeper))
        check("openssl ca, crl and ocsp", authority)
        check("openssl smime, spkac, x509 and req", commands)
        check("programs that take files only", those_without)
    finally:
        keeper.process.send_signal(signal.SIGCONT)
        keeper.end()
    return openssl_inside.failed


if __name__ == "__main__":
    sys.exit(main())
