#!/usr/bin/python3
"""Stands in for NVIDIA's hook, which Docker runs before a container that was given `--gpus`.

Docker passes the wanted GPUs in NVIDIA_VISIBLE_DEVICES; runc calls this with `prestart` and the
container's state on its input (OCI runtime specification, POSIX-platform hooks), when the
container's namespaces exist and its root does not yet. The nodes are made in that root, and the
kernel's device control group lets the container open these and no others.
"""

import json
import os
import pathlib
import subprocess
import sys

MAJOR, CONTROL = 195, 255


def wanted(environment):
    """Indices of the GPUs, from NVIDIA_VISIBLE_DEVICES: indices, UUIDs, `all`, or nothing."""
    asked = environment.get("NVIDIA_VISIBLE_DEVICES", "void")
    if asked in ("", "void", "none"):
        return []
    gpus = json.loads(pathlib.Path("/etc/rig-gpus.json").read_text())
    if asked == "all":
        return [int(gpu["index"]) for gpu in gpus]
    by_name = {gpu[key]: int(gpu["index"]) for gpu in gpus for key in ("index", "uuid")}
    for name in asked.split(","):
        if name not in by_name:
            sys.exit(f"nvidia-container-cli: device error: {name}: unknown device")
    return [by_name[name] for name in asked.split(",")]


def device_group(pid):
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "devices" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/devices") / path.lstrip("/")
    sys.exit("no control group for devices")


def main():
    if sys.argv[1:] != ["prestart"]:
        return
    state = json.load(sys.stdin)
    bundle = pathlib.Path(state["bundle"])
    config = json.loads((bundle / "config.json").read_text())
    indices = wanted(dict(entry.split("=", 1) for entry in config["process"]["env"]))
    if not indices:
        return
    root = bundle / config["root"]["path"]
    nodes = {f"nvidia{index}": index for index in indices} | {"nvidiactl": CONTROL}
    group = device_group(state["pid"])
    namespace = os.open(f"/proc/{state['pid']}/ns/mnt", os.O_RDONLY)
    for name, minor in nodes.items():
        (group / "devices.allow").write_text(f"c {MAJOR}:{minor} rw")
        make = ["mknod", "-m", "666", str(root / "dev" / name), "c", str(MAJOR), str(minor)]
        enter = ["nsenter", f"--mount=/proc/self/fd/{namespace}", "--"]
        subprocess.run([*enter, *make], check=True, pass_fds=[namespace])


main()
