# Sourced by the scripts that unpack programs of Debian, with all that they need, into a folder, after `folder` is set.
# It ends the script if they are there already. Nothing is installed. Needs root, apt with the archive's keyring, and
# Debian's archive or a mirror that apt is configured for.
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
[[ ! -e $folder/version ]] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "no apt here" >&2; exit 2; }
apt=$folder/apt
packages=$apt/archives

# download RELEASE PACKAGE...: gets them with their dependencies into the folder `packages`.
download() {
  mkdir -p "$apt"/{lists/partial,archives/partial}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $1 main" >"$apt/sources.list"
  local options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent -o "Dir::State=$apt"
    -o Dir::State::status=/dev/null -o "Dir::Cache=$apt" -o APT::Sandbox::User=root -o Acquire::Retries=1
    -o Acquire::http::Timeout=20 -o APT::Update::Error-Mode=any -qq)
  apt-get "${options[@]}" update
  # Installed packages are ignored, so that all dependencies are unpacked.
  apt-get "${options[@]}" --download-only --no-install-recommends -y install "${@:2}"
}

# version_of PACKAGE: prints the version of one that was downloaded.
version_of() { dpkg-deb -f "$packages/$1"_*.deb Version; }

# finish VERSION: notes that all is there, and which version.
finish() {
  rm -r "$apt"
  # This file is written last.
  echo "$1" >"$folder/version"
}
