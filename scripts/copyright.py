#!/usr/bin/env python3
"""Writes into debian/copyright who has written the crates that are linked into the executables, and under which licences.

    copyright.py [--check]    with --check it writes nothing, and fails where the file is not up to date

A crate has a paragraph `Files: vendor/NAME/*`, as if cargo had put it there. All other paragraphs are written by hand, the texts of
the licences among them. Where a crate gives a choice, only Apache-2.0 and Expat are named, if it has one of these."""

import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FILE = ROOT / "debian/copyright"
EXECUTABLES = ["sealane-cli", "sealane-shim", "sealane-provider"]
TARGET = "x86_64-unknown-linux-gnu"
# The names of SPDX that are others in Debian.
NAMES = {"MIT": "Expat"}
OURS = ("Apache-2.0", "Expat")
# A line that names a holder, and one of the template in the Apache licence, which does not.
HOLDER = re.compile(r"^\s*(?:(?:Copyright\s+)+(?:\(c\)\s*|©\s*)?|\(c\)\s+)(?=.*(?:\d{4}|contributors|developers|authors|affiliates))(.+?)\.?\s*$", re.I)
ALSO = re.compile(r"^\s*- (.+) \(Copyright ([\d-]+)\)$")
TEMPLATE = ("[yyyy]", "{yyyy}", "(c) <year>")


def cargo(*words):
    return subprocess.run(["cargo", *words, "--locked"], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def linked():
    """Names and versions of the crates of others that an executable is made of."""
    packages = [word for name in EXECUTABLES for word in ("-p", name)]
    tree = cargo("tree", *packages, "-e", "normal,no-proc-macro", "--target", TARGET, "--prefix", "none", "--format", "{p}")
    found = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip() and f"({ROOT}" not in line}
    return {(name, version.removeprefix("v")) for name, version in found}


def licences(expression):
    """All that hold together; of a choice one name, or two with `or`."""
    together = []
    for part in re.split(r"\s+AND\s+(?![^(]*\))", expression):
        choice = [NAMES.get(name, name) for name in re.split(r"\s+OR\s+|/", part.strip("()"))]
        ours = [name for name in OURS if name in choice]
        together.append(" or ".join(ours or choice))
    # What is there alone holds for a choice that has it, too.
    alone = {name for name in together if " or " not in name}
    kept = [name for name in together if name in alone or not alone & set(name.split(" or "))]
    return " and ".join(sorted(set(kept)))


def holders(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    found = []
    for path in sorted(folder.iterdir()):
        if not re.match(r"(?i)(licen[cs]e|copying|copyright|notice)", path.name) or not path.is_file():
            continue
        for line in path.read_text(errors="replace").splitlines():
            if any(word in line for word in TEMPLATE):
                continue
            if match := HOLDER.match(line):
                found.append(match[1])
            elif match := ALSO.match(line):
                found.append(f"{match[2]} {match[1]}")
    found = found or package["authors"] or [f"The authors of {package['name']}"]
    return tuple(dict.fromkeys(found))


def paragraphs():
    meta = json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", TARGET))
    packages = {(p["name"], p["version"]): p for p in meta["packages"]}
    groups = {}
    for key in sorted(linked()):
        package = packages[key]
        groups.setdefault((licences(package["license"]), holders(package)), []).append(key[0])
    texts = []
    for (licence, who), names in sorted(groups.items(), key=lambda group: group[1]):
        files = "\n       ".join(f"vendor/{name}/*" for name in dict.fromkeys(names))
        copyright = "\n           ".join(who)
        texts.append(f"Files: {files}\nCopyright: {copyright}\nLicense: {licence}")
    return texts


def main():
    by_hand = [text for text in FILE.read_text().strip().split("\n\n") if not text.startswith("Files: vendor/")]
    first_text = next(i for i, text in enumerate(by_hand) if text.startswith("License:"))
    crates = paragraphs()
    texts = {text.splitlines()[0].removeprefix("License: ") for text in by_hand[first_text:]}
    named = {name for text in crates for name in re.split(r" or | and ", text.rsplit("License: ", 1)[1])}
    if named - texts:
        sys.exit(f"{FILE}: there is no text of {', '.join(sorted(named - texts))}")
    whole = "\n\n".join(by_hand[:first_text] + crates + by_hand[first_text:]) + "\n"
    if "--check" not in sys.argv:
        FILE.write_text(whole)
    elif whole != FILE.read_text():
        sys.exit(f"{FILE} is not up to date: run scripts/copyright.py")


if __name__ == "__main__":
    main()
