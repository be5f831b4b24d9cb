# Sourced by unpack.sh and unpack_source.sh: apt for a release of Debian, from a folder of its own. Nothing of this system's apt is changed.
# Needs root, apt with the archive's keyring, and Debian's archive or a mirror that apt is configured for.

# archive TYPE FOLDER RELEASE: reads the release's lists of packages (TYPE: deb) or sources (deb-src) into a folder. `options` are then
# those of apt's commands, which count no package as installed.
archive() {
  command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "no apt here" >&2; exit 2; }
  mkdir -p "$2"/{lists/partial,archives/partial}
  : >"$2/status"
  # Backports need packages of the release that they are for, and experimental ones those of sid.
  printf "$1 [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n" \
    $(printf '%s\n' "$3" "${3%-backports}" | uniq | sed 's/^experimental$/&\nsid/') >"$2/sources.list"
  options=(-o "Dir::Etc::sourcelist=$2/sources.list" -o Dir::Etc::sourceparts=/nonexistent -o "Dir::State=$2"
    -o "Dir::State::status=$2/status" -o "Dir::Cache=$2" -o APT::Sandbox::User=root -o Acquire::Retries=1
    -o Acquire::http::Timeout=20 -o "APT::Default-Release=$3" -o APT::Update::Error-Mode=any -qq)
  apt-get "${options[@]}" update
}
