#!/usr/bin/env bash
# etc/sealane-keeper.service under systemd, unchanged with its sandbox, as docs/keys.md says to set it up: its store is under a credential that
# systemd decrypts (LoadCredentialEncrypted=). The daemon has a key of it, as docs/tcp-ao.md says, and `sealane doctor` tells what is missing
# for that, step by step.
#
#   systemd_keeper.sh
#
# container.sh says how. The credential is encrypted by the key of the container alone: it has no TPM. Each check writes PASS or FAIL. Exit
# status: 0 all passed, 1 not, 2 or 77 could not try.
. "$(dirname "$0")/common.sh"
[[ $EUID -eq 0 ]] || { echo "SKIPPED systemd-keeper: only root may make network namespaces"; exit 77; }
why=$(unshare -n nft list tables 2>&1) || { echo "SKIPPED systemd-keeper: no network namespace with nftables can be made: $why"; exit 77; }
command -v systemd-creds >/dev/null || { echo "SKIPPED systemd-keeper: no systemd-creds here"; exit 77; }
suite=systemd-keeper
. "$(dirname "$0")/two_ends.sh"
. "$(dirname "$0")/container.sh"
wire

cat >"$dir/a.toml" <<'TOML'
[[peer]]
name = "other end"
prefix = "10.80.0.2"
port = 179
[[peer.key]]
send-id = 1
recv-id = 1
algorithm = "hmac(sha256)"
secret = { keeper = "bgp" }
TOML
chmod 600 "$dir/a.toml"
mkdir -p "$dir/units/sealane-keeper.service.d"
cp "$root/etc/sealane-keeper.service" "$dir/units/"
printf '[Service]\nStandardOutput=append:/keeper.log\nStandardError=append:/keeper.log\n' >"$dir/units/sealane-keeper.service.d/log.conf"
cp "$root/etc/sealane-keeper.sysusers" "$root/etc/keeper.toml" "$dir/"
container

# doctor: what it says about the keeper, a line for each finding and each command. It fails if there is no report.
doctor() {
  # Something is always to be done in such a container.
  inside sealane doctor --json >"$dir/report" || true
  python3 - "$dir/report" <<'PY'
import json, sys
for finding in json.load(open(sys.argv[1]))["findings"]:
    if finding["id"] == "keeper":
        print(f"{finding['level']}: {finding['text']}", *(f"# {command}" for command in finding["commands"]), sep="\n")
PY
}
tells() { local text; text=$(doctor) && grep -qF -- "$1" <<<"$text" || { echo "doctor: $text"; return 1; }; }
tells_not() { local text; text=$(doctor) && ! grep -qF -- "$1" <<<"$text" || { echo "doctor: $text"; return 1; }; }
tells_nothing() { local text; text=$(doctor) && [[ -z $text ]] || { echo "doctor: $text"; return 1; }; }
# obeys PATTERN: runs the commands of the findings that match.
obeys() {
  local finding='' line commands='' text
  text=$(doctor) || return 1
  while read -r line; do
    case $line in
      '# '*) [[ ! $finding =~ $1 ]] || commands+=${line#\# }$'\n' ;;
      *) finding=$line ;;
    esac
  done <<<"$text"
  [[ -n $commands ]] || { echo "no commands about $1"; return 1; }
  sed 's/^/  # /' <<<"${commands%$'\n'}"
  inside sh -ec "$commands"
}

check "doctor: the daemon's unit is not set up for the keeper" \
  tells 'sealane.service does not start after sealane-keeper.service and does not see /run/sealane-keeper'
check "doctor: the keeper does not answer" tells 'which does not answer'
check "what doctor says sets the daemon's unit up" obeys 'sealane.service'
check "doctor: the unit is set up" tells_not 'does not start after'
check "the daemon starts without its keeper" within 10 inside systemctl is-active --quiet sealane
check "and says so" said "bgp" 1

# As docs/keys.md says.
cat >"$dir/setup" <<'SH'
set -e
install -D -m 644 "$1/sealane-keeper.sysusers" /usr/local/lib/sysusers.d/sealane-keeper.conf
systemd-sysusers
install -D -m 640 -g sealane-keeper "$1/keeper.toml" /etc/sealane/keeper.toml
head -c 32 /dev/urandom | systemd-creds encrypt --name=store - /etc/sealane/keeper.credential
mkdir -p /etc/systemd/system/sealane-keeper.service.d
printf '[Service]\nLoadCredentialEncrypted=store:/etc/sealane/keeper.credential\n' \
    > /etc/systemd/system/sealane-keeper.service.d/store.conf
systemctl daemon-reload
SH
check "the commands of docs/keys.md" inside sh "$dir/setup" "$dir"
same_commands() { # those of the document, without the prompts
  local line
  while read -r line; do
    grep -qF -- "$line" "$root/docs/keys.md" || { echo "docs/keys.md has no: $line"; return 1; }
  done < <(sed -n '/^systemd-sysusers/,/^  *> /p' "$dir/setup" | sed 's/"$1\/keeper.toml"/\/usr\/local\/share\/doc\/sealane\/keeper.toml/; s/^ *//')
}
check "they are those of docs/keys.md" same_commands
check "the keeper starts as doctor says" obeys 'does not answer'
check "systemctl status tells that it serves" inside systemctl is-active --quiet sealane-keeper
inside systemctl status --no-pager sealane-keeper | sed -n '3,8p' || true
inside tail -n 3 /keeper.log || true

keeper_main() { inside systemctl show -p MainPID --value sealane-keeper; }
as_its_user() { [[ $(inside stat -c %U "/proc/$(keeper_main)") == sealane-keeper ]]; }
check "it runs as its own user" as_its_user
# The credential is in memory that only its user reads, and decrypted there alone.
confined_credential() {
  local folder=/run/credentials/sealane-keeper.service
  inside nsenter -t "$(keeper_main)" -m stat -f -c %T "$folder" >"$dir/out" || return 1
  [[ $(<"$dir/out") =~ ^(ramfs|tmpfs)$ ]] || { cat "$dir/out"; return 1; }
  [[ $(inside nsenter -t "$(keeper_main)" -m stat -c %s "$folder/store") == 32 ]] &&
    ! inside setpriv --reuid=65534 --clear-groups cat "$folder/store" >/dev/null 2>&1
}
check "the credential is in memory, and closed to others" confined_credential
hex() { od -An -v -tx1 | tr -d ' \n'; }
sealed() { # the credential on disk does not have the secret, which is 32 bytes
  local secret stored
  secret=$(inside cat /run/credentials/sealane-keeper.service/store | hex) && stored=$(inside base64 -d /etc/sealane/keeper.credential | hex) || return 1
  [[ ${#secret} == 64 && ${#stored} -gt 64 && $stored != *"$secret"* ]]
}
check "on disk it is encrypted" sealed

head -c 32 /dev/urandom >"$dir/bgp"
key_missing() {
  inside env SEALANE_RUNTIME_DIR=/run/sealane sealane tcp-ao show --metrics >"$dir/metrics" && grep -q '^sealane_tcp_ao_missing_keys{[^}]*} 1$' "$dir/metrics"
}
check "the metric has a key that is missing" key_missing
check "doctor: the key is missing" tells "cannot use the key 'bgp'"
imports() { # the command that doctor gives, with a file
  local command
  command=$(doctor | sed -n 's/^# \(.* import .*\)SECRET$/\1/p')
  [[ -n $command ]] && inside sh -c "$command '$dir/bgp'"
}
check "the key is imported as doctor says" imports
no_key_missing() {
  inside env SEALANE_RUNTIME_DIR=/run/sealane sealane tcp-ao show --metrics >"$dir/metrics" && grep -q '^sealane_tcp_ao_missing_keys{[^}]*} 0$' "$dir/metrics"
}
# It was started before the keeper, and has seen its folder all the same.
check "the daemon has found it" within 5 no_key_missing
check "doctor: all is well" tells_nothing
check "the keeper is started again" inside systemctl restart sealane-keeper
check "its keys are there" inside sealane key show bgp
check "both start in order" inside systemctl restart sealane-keeper sealane
check "the daemon has found the key" within 5 no_key_missing

# A credential of another secret, of another name, and one that has been changed, open no store.
inside cp /etc/sealane/keeper.credential /etc/sealane/good.credential
fails() { # as it starts again and again, it is never active
  inside systemctl stop sealane-keeper
  ! inside systemctl start sealane-keeper 2>/dev/null && ! inside systemctl is-active --quiet sealane-keeper && inside systemctl stop sealane-keeper
}
inside sh -c 'head -c 32 /dev/urandom | systemd-creds encrypt --name=store - /etc/sealane/keeper.credential'
check "another secret opens nothing" fails
inside sh -c 'head -c 32 /dev/urandom | systemd-creds encrypt --name=other - /etc/sealane/keeper.credential'
check "nor does a credential of another name" fails
changed() { # another byte in the middle
  inside sh -ec 'base64 -d </etc/sealane/good.credential >/tmp/raw
    byte=$(od -An -tu1 -j60 -N1 /tmp/raw)
    printf "\\$(printf %03o $((byte ^ 255)))" | dd of=/tmp/raw bs=1 seek=60 conv=notrunc status=none
    base64 /tmp/raw >/etc/sealane/keeper.credential
    [ $(base64 -d </etc/sealane/good.credential | cmp -l - /tmp/raw | wc -l) = 1 ]'
}
check "a credential with one byte changed" changed
check "opens nothing either" fails
# A secret that is too short is refused also where no store says that it is another one.
empty_store() { inside systemctl stop sealane-keeper; inside rm -rf /var/lib/sealane-keeper/keys; }
inside cp -a /var/lib/sealane-keeper/keys /var/lib/sealane-keeper/good-keys
with_secret() { # BYTES: an empty store, and a new secret of so many
  empty_store && inside sh -c 'head -c "$1" /dev/urandom | systemd-creds encrypt --name=store - /etc/sealane/keeper.credential' sh "$1"
}
check "a new secret for an empty store" with_secret 32
check "makes one" inside systemctl start sealane-keeper
check "one that is too short" with_secret 16
short() { fails && inside tail -n 5 /keeper.log | grep -F 'the credential has less than 32 bytes'; }
check "makes none" short
empty_store
inside mv /var/lib/sealane-keeper/good-keys /var/lib/sealane-keeper/keys
check "the keys are where they were" inside test -n "$(inside ls /var/lib/sealane-keeper/keys)"
inside mv /etc/sealane/good.credential /etc/sealane/keeper.credential
check "the right one opens it again" inside systemctl start sealane-keeper
check "its keys are there" inside sealane key show bgp
exit "$failed"
