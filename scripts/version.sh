#!/bin/sh
# Prints the version of Cargo.toml.
sed -n 's/^version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml"
