#!/usr/bin/env python3
"""Packs a folder as an OCI image, in an archive that podman, skopeo, docker (from 25) and containerd load.

    image.py FOLDER ARCHIVE VERSION    SOURCE_DATE_EPOCH is the time of all that is in it

The archive is an image layout (OCI image specification 1.0, image-layout.md) of one image with one layer. It depends on the names,
contents, modes and links of the folder's files and on nothing else, neither owners nor times, so that two of the same build are equal."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import platform
import sys
import tarfile
import time

NAME = "sealane"
# The names of Go, which image indexes use.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
TYPES = "application/vnd.oci.image."


def entry(name, epoch, mode):
    info = tarfile.TarInfo(name)
    info.mtime, info.mode = epoch, mode
    return info


def layer(folder, epoch):
    """The tar file of a folder, everything root's."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            info = entry(str(path.relative_to(folder)), epoch, path.lstat().st_mode & 0o7777)
            if path.is_symlink():
                info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(info)
            elif path.is_dir():
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                content = path.read_bytes()
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return written.getvalue()


class Layout:
    """Blobs by their digests."""

    def __init__(self):
        self.files = {}

    def add(self, media_type, content):
        digest = hashlib.sha256(content).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = content
        return {"mediaType": TYPES + media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def add_json(self, media_type, value):
        return self.add(media_type, as_json(value))

    def write(self, archive, epoch):
        folders = {str(parent) for name in self.files for parent in pathlib.PurePath(name).parents} - {"."}
        with tarfile.open(archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name in sorted(folders | self.files.keys()):
                content = self.files.get(name)
                info = entry(name, epoch, 0o755 if content is None else 0o644)
                if content is None:
                    info.type = tarfile.DIRTYPE
                else:
                    info.size = len(content)
                tar.addfile(info, io.BytesIO(content or b""))


def as_json(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def main(folder, archive, version):
    epoch = int(os.environ["SOURCE_DATE_EPOCH"])
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))
    labels = {
        "org.opencontainers.image.title": "Sealane",
        "org.opencontainers.image.description": "Linux's network cryptography, in user space: IPsec, TCP-AO and AF_ALG",
        "org.opencontainers.image.version": version,
        "org.opencontainers.image.licenses": "Apache-2.0 OR MIT",
        "org.opencontainers.image.created": created,
    }
    if revision := os.environ.get("REVISION"):
        labels["org.opencontainers.image.revision"] = revision
    content = layer(folder, epoch)
    layout = Layout()
    # gzip's header has neither a time nor a name.
    packed = layout.add("layer.v1.tar+gzip", gzip.compress(content, compresslevel=9, mtime=0))
    platform_of = {"architecture": ARCHITECTURES[platform.machine()], "os": "linux"}
    config = layout.add_json("config.v1+json", platform_of | {
        "created": created,
        "config": {
            "Entrypoint": ["/usr/bin/sealane"],
            "Cmd": ["daemon", "--config", "/etc/sealane/sealane.toml"],
            "Env": ["PATH=/usr/bin"],
            # The daemon ends by it in order: protected traffic is dropped until the next one is there.
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(content).hexdigest()]},
        "history": [{"created": created, "created_by": "make image"}],
    })
    manifest = layout.add_json("manifest.v1+json", {
        "schemaVersion": 2, "mediaType": TYPES + "manifest.v1+json", "config": config, "layers": [packed], "annotations": labels})
    names = {"org.opencontainers.image.ref.name": version, "io.containerd.image.name": f"localhost/{NAME}:{version}"}
    layout.files["index.json"] = as_json({
        "schemaVersion": 2, "mediaType": TYPES + "index.v1+json",
        "manifests": [manifest | {"platform": platform_of, "annotations": names}]})
    layout.files["oci-layout"] = as_json({"imageLayoutVersion": "1.0.0"})
    layout.write(archive, epoch)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3])
