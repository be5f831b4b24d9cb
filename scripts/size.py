#!/usr/bin/env python3
"""Says of what the executable and the library consist: sections by kind, and symbols by the crate or C library that they
come from. Needs binutils.

    size.py [FILE...]     the built ones without arguments
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILT = [ROOT / "target/release/sealane", ROOT / "target/release/libsealane_shim.so"]
KINDS = [
    ("debug information", re.compile(r"\.(z)?debug_")),
    ("names of symbols", re.compile(r"\.(symtab|strtab|shstrtab)$")),
    ("code", re.compile(r"\.(text|init|fini|plt)")),
    ("constants and tables", re.compile(r"\.(rodata|data\.rel\.ro)")),
    ("unwinding", re.compile(r"\.(eh_frame|eh_frame_hdr|gcc_except_table)$")),
    ("relocations", re.compile(r"\.rela?\.")),
]


def lines(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def sections(path):
    for line in lines("readelf", "-SW", path):
        fields = re.sub(r"^\s*\[\s*\d+\]", "", line).split()
        if len(fields) >= 5 and fields[0].startswith(".") and fields[1] != "NOBITS":
            yield fields[0], int(fields[4], 16)


def archive_symbols():
    found = {name.split()[-1] for lib in pathlib.Path("/usr/lib").rglob("libIPSec_MB.a") for name in lines("nm", "--defined-only", lib) if len(name.split()) == 3}
    return found


def origin(name, of_ipsec_mb):
    if name.startswith("aws_lc_") or "aws_lc" in name.split("::")[0]:
        return "aws-lc"
    if name in of_ipsec_mb:
        return "intel-ipsec-mb"
    path = re.sub(r"^<*(&|dyn |mut |\[|\(|\*const |\*mut )*", "", name)
    crate = re.match(r"([a-z_][a-z0-9_]*)::", path)
    if crate is None:
        return "C, and other names"
    crate = crate.group(1)
    return crate.replace("_", "-") if crate.startswith("sealane") else {"core": "Rust's library", "alloc": "Rust's library", "std": "Rust's library"}.get(crate, "other crates")


def report(path, of_ipsec_mb):
    size = path.stat().st_size
    print(f"{path.name}: {size / 1e6:.1f} MB")
    kinds = collections.Counter()
    for name, length in sections(path):
        kinds[next((kind for kind, pattern in KINDS if pattern.match(name)), "other")] += length
    for kind, length in kinds.most_common():
        print(f"  {length / 1e6:7.2f} MB  {kind}")
    # Assembly has symbols without a size: each reaches to the next one.
    starts = sorted({int(fields[0], 16): fields[2] for fields in (line.split(maxsplit=2) for line in lines("nm", "--demangle", path))
                     if len(fields) == 3 and fields[1].lower() in "tw"}.items())
    origins = collections.Counter()
    for (start, name), (end, _) in zip(starts, starts[1:]):
        origins[origin(name, of_ipsec_mb)] += end - start
    print("  code, by origin:")
    for name, length in origins.most_common(12):
        print(f"  {length / 1e6:7.2f} MB  {name}")


def main():
    of_ipsec_mb = archive_symbols()
    for path in [pathlib.Path(p) for p in sys.argv[1:]] or BUILT:
        report(path, of_ipsec_mb)


main()
