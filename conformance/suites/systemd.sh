#!/usr/bin/env bash
# etc/sealane.service under systemd, unchanged with its sandbox: a session goes on while it is restarted, killed and
# reloaded.
#
#   systemd.sh
#
# container.sh says how. As root, on a machine with systemd installed (it need not run), overlayfs and the unified cgroup
# hierarchy. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 or 77 could not try.
. "$(dirname "$0")/common.sh"
[[ $EUID -eq 0 ]] || { echo "SKIPPED systemd: only root may make network namespaces"; exit 77; }
why=$(unshare -n nft list tables 2>&1) || { echo "SKIPPED systemd: no network namespace with nftables can be made: $why"; exit 77; }
suite=systemd
. "$(dirname "$0")/two_ends.sh"
. "$(dirname "$0")/container.sh"
wire

# Two ends without TCP-AO, on the port of BGP. The client writes the number of its answers to a file, and ends when told
# to.
cat >"$dir/session.py" <<'PY'
import os, socket, sys, time
role, folder = sys.argv[1:]
if role == "server":
    listener = socket.create_server(("10.80.0.2", 179))
    sock, _ = listener.accept()
    while data := sock.recv(65536):
        sock.sendall(data)
    sys.exit()
sock = socket.create_connection(("10.80.0.2", 179), timeout=20)
answers = 0
while not os.path.exists(folder + "/enough"):
    # Enough data for the fast path.
    question = os.urandom(65536)
    sock.sendall(question)
    answer = b""
    while len(answer) < len(question) and (more := sock.recv(65536)):
        answer += more
    assert answer == question
    answers += 1
    with open(folder + "/new", "w") as file:
        file.write(str(answers))
    os.replace(folder + "/new", folder + "/answers")
    time.sleep(0.01)
PY
answers() { cat "$dir/answers" 2>/dev/null || true; }
more() { # than that many answers
  local now; now=$(answers); [[ -n $now && $now -gt $1 ]]
}
goes_on() { within 20 more "$(($(answers) + 20))"; }

# keys_of END PEER SECRET ID [TIME]: writes a configuration; with a time, the key ends then.
keys_of() {
  cat >"$dir/$1.toml" <<TOML
[[peer]]
name = "other end"
prefix = "$2"
port = 179
[[peer.key]]
send-id = $4
recv-id = $4
algorithm = "hmac(sha256)"
secret = "$3"
TOML
  [[ -z ${5:-} ]] || sed -i "s/^secret.*/&\nlifetime = { start = 2020-01-01T00:00:00Z, end = $5 }/" "$dir/$1.toml"
  chmod 600 "$dir/$1.toml"
}
# Adds a second key, which follows the first at once.
also() { # END SECRET ID
  cat >>"$dir/$1.toml" <<TOML
[[peer.key]]
send-id = $3
recv-id = $3
algorithm = "cmac(aes128)"
secret = "$2"
lifetime = { start = 2020-01-02T00:00:00Z }
TOML
}

keys_of a 10.80.0.2 first 1
keys_of b 10.80.0.1 first 1
container

check "systemd-analyze verify finds nothing" inside systemd-analyze verify --man=no sealane.service
inside systemd-analyze security sealane.service | tail -n 1
check "wire-watch" watch 179
check "the unit starts" inside systemctl start sealane
inside systemctl status --no-pager sealane | sed -n '5,12p' || true
sandboxed

check "the other end" serve b 'peers protected'
: >"$dir/answers"
ip netns exec "$name-b" python3 "$dir/session.py" server "$dir" >>"$dir/b.log" 2>&1 8>&- 9>&- &
pids+=($!)
sleep 1
ip netns exec "$name-a" python3 "$dir/session.py" client "$dir" >"$dir/client.log" 2>&1 8>&- 9>&- &
client=$!
pids+=("$client")
check "a session" within 10 more 20
check "systemctl restart" inside systemctl restart sealane
check "the connection went on" said '1 connections go on' 1
check "the session goes on" goes_on
for round in 2 3; do
  inside systemctl kill -s KILL sealane
  check "killed, it comes back ($((round - 1)))" within 10 said 'peers protected' $((round + 1))
  check "the connection went on" said '1 connections go on' "$round"
  check "the session goes on" goes_on
done
# Another key on both ends, and the first one ends; then an invalid configuration.
soon=$(date -u -d '+6 seconds' +%Y-%m-%dT%H:%M:%SZ)
keys_of a 10.80.0.2 first 1 "$soon"; also a second 2
keys_of b 10.80.0.1 first 1 "$soon"; also b second 2
kill -HUP "$daemon_b"
check "systemctl reload" reload a.toml
check "it reads its keys again" within 5 said 'read again' 1
sleep 8
keys_of a 10.80.0.2 second 2
sed -i 's/hmac(sha256)/hmac(sha257)/' "$dir/a.toml"
reload a.toml || true
check "a wrong configuration is refused" within 5 said 'everything stays as it was' 1
log | grep 'everything stays'
check "the session goes on" goes_on
check "the unit is active" inside systemctl is-active --quiet sealane
# After a stop nothing passes unsigned.
inside systemctl stop sealane
before=$(answers)
check "nothing passes once it is stopped" not_for 2 more "$((before + 2))"
# A mistake from the beginning: each start waits longer than the one before, and the mended file is read at once.
inside install -m 600 "$dir/a.toml" /etc/sealane/sealane.toml
check "a mistake in the configuration is no start" not_for 0 inside systemctl start sealane
sleep 5
restarts=$(inside systemctl show -p NRestarts --value sealane)
check "$restarts starts in 5 s" test "$restarts" -ge 2 -a "$restarts" -le 8
keys_of a 10.80.0.2 first 1 "$soon"; also a second 2
inside install -m 600 "$dir/a.toml" /etc/sealane/sealane.toml
check "mended, it starts by itself" within 20 inside systemctl is-active --quiet sealane
check "the session goes on" goes_on
inside env SEALANE_RUNTIME_DIR=/run/sealane sealane tcp-ao show | grep -E "path:|good [1-9]" || true
touch "$dir/enough"
check "the client had its answers" wait "$client"
echo "$(answers) answers"
sleep 1
inside systemctl stop sealane
kill "$daemon_b"; wait "$daemon_b" || true
check "every segment was signed" watched
log | grep -v '^ *key\|^ *[0-9]\|^peer\|^$'
exit "$failed"
