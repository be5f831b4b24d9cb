#!/usr/bin/env bash
# Unpacks strongSwan's charon and swanctl of Debian 13, with the libraries that they need, into a folder: CHARON_ROOT of
# the suites of charon. It does nothing if they are there already; unpack.sh says what it needs.
#
#   newer_charon.sh FOLDER
exec "$(dirname "$0")/unpack.sh" trixie "${1:?FOLDER is missing}" charon-systemd strongswan-swanctl libstrongswan-standard-plugins
