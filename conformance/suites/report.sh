#!/usr/bin/env bash
# The report of `sealane bench --quick`, opened in headless Chromium as on a desktop and on a phone, light and dark: no script, no
# message on the console, nothing loaded, every chart with titles, units and a table, no text cut off or upon another, and no page that
# is wider than its window. Pictures of what was seen are then in target/report.
#
#   report.sh [FOLDER]    opens the report in this folder, and makes none; the folder may be the one that a run before has made
#
# With Chromium: an installed one, or that of this Debian, unpacked in target/chromium as root. Each check writes PASS or FAIL. Exit
# status: 0 all passed, 1 not, 77 could not try.
suite=report
. "$(dirname "$0")/common.sh"
lacks() { echo "SKIPPED report: $1"; exit 77; }
failed=0
check() { # WHAT COMMAND...
  local out
  if out=$("${@:2}" 2>&1); then echo "PASS $1"; else echo "FAIL $1"; tail -n 20 <<<"$out"; failed=1; fi
}
place=$root/target/report
folder=${1:-}
[[ -n $folder ]] || rm -rf "$place"
mkdir -p "$place"
tools=$root/target/chromium
# Debian's script /usr/bin/chromium starts this program, too.
chromium=/usr/lib/chromium/chromium with=()
if [[ ! -x $chromium ]]; then
  [[ $EUID -eq 0 ]] || lacks "no Chromium here, and only root may unpack Debian's packages"
  # With the C library that this machine has.
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  "$(dirname "$0")/unpack.sh" "$release" "$tools" chromium fonts-dejavu-core >"$place/log" 2>&1 ||
    lacks "no Chromium here, and none can be had: $(tail -n 1 "$place/log")"
  chromium=$tools/usr/lib/chromium/chromium
  lib=$tools/usr/lib/$(uname -m)-linux-gnu
  printf '<fontconfig><dir>%s</dir><cachedir>%s</cachedir></fontconfig>\n' "$tools/usr/share/fonts" "$place/fonts" >"$place/fonts.conf"
  with=("LD_LIBRARY_PATH=$lib:$lib/nss:$lib/pulseaudio" "FONTCONFIG_FILE=$place/fonts.conf")
fi

if [[ -z $folder ]]; then
  folder=$place/made
  check "a quick run ends well" "$sealane" bench --quick --out "$folder"
  ((!failed)) || exit 1
  check "the report equals itself" "$sealane" bench compare "$folder/data.json" "$folder/data.json"
fi
env "${with[@]}" python3 "$(dirname "$0")/report.py" "$chromium" "$folder" "$place" || failed=1
exit "$failed"
