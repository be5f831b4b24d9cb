#!/usr/bin/env python3
"""Writes the names, licences and copyright notices of what is linked into the executable and the library: crates, and
the C libraries in them. Packages carry it, because these licences ask for it. Needs cargo and the crates of Cargo.lock,
nothing of the network."""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGES = ["sealane-cli", "sealane-shim"]


def cargo(*args):
    return subprocess.run(["cargo", *args, "--locked", "--offline"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


def main():
    selected = [word for name in PACKAGES for word in ("-p", name)]
    tree = cargo("tree", *selected, "-e", "normal", "--prefix", "none", "-f", "{p}")
    used = {tuple(line.split()[:2]) for line in tree.splitlines() if line}
    rustc = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    host = next(line.split()[1] for line in rustc.splitlines() if line.startswith("host:"))
    texts = {}
    for package in json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", host))["packages"]:
        name = (package["name"], "v" + package["version"])
        if name not in used or package["source"] is None:
            continue
        folder = pathlib.Path(package["manifest_path"]).parent
        found = sorted(p for p in folder.glob("*") if p.is_file() and p.name.upper().startswith(("LICEN", "COPY", "NOTICE", "UNLICENSE")))
        # The whole Apache licence is in Debian's and others' folders of common licences.
        words = [p.read_text(errors="replace").strip() for p in found if "apache" not in p.name.lower()]
        text = "\n\n".join(words) or "(no text in the crate)"
        title = f"{package['name']} {package['version']} ({package['license'] or 'see below'})"
        texts.setdefault(text, []).append(title)
    mb = pathlib.Path("/usr/share/doc/libipsec-mb-dev/copyright")
    if mb.exists():
        texts.setdefault(mb.read_text().strip(), []).append("intel-ipsec-mb (BSD-3-Clause)")
    for text, titles in sorted(texts.items(), key=lambda item: sorted(item[1])):
        print("=" * 79, *sorted(titles), "", text, "", sep="\n")


sys.exit(main())
