#!/usr/bin/python3
"""Stands in for nvidia-smi on a rig host: answers its queries, or fails as the real one does.

/etc/rig-gpus.json is a list of GPUs, each `{field: text, ..., "apps": [{field: text}]}` with the
field names of --query-gpu and --query-compute-apps. A container that the kernel lets open a GPU
holds it: its largest process is an app too. /etc/rig-nvidia-smi holds an exit code to fail with,
or `hang`.
"""

import json
import pathlib
import re
import sys
import time

SAYS = {
    "4": "Failed to initialize NVML: Insufficient Permissions",
    "6": "No devices were found",
    "9": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure"
    " that the latest NVIDIA driver is installed and running.\n",
    "15": "Unable to determine the device handle for GPU0000:81:00.0: GPU is lost.  Reboot the"
    " system to recover this GPU",
    "18": "Failed to initialize NVML: Driver/library version mismatch\n"
    "NVML library version: 580.95",
}
CONTAINERS = pathlib.Path("/sys/fs/cgroup/devices/docker")
PAGE_BYTES = 4096


def resident_mib(pid):
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES // 2**20


def holders():
    """(index of the GPU, pid, MiB, name) of each container that has one."""
    for group in CONTAINERS.glob("*/"):
        try:
            allowed = re.findall(r"^c 195:(\d+) rw", (group / "devices.list").read_text(), re.M)
            pids = (group / "cgroup.procs").read_text().split()
            used, pid = max((resident_mib(pid), pid) for pid in pids)
            name = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        except (OSError, ValueError):
            continue  # It ended while it was looked at.
        for minor in allowed:
            yield minor, pid, used, name


fault = pathlib.Path("/etc/rig-nvidia-smi")
if fault.exists():
    how = fault.read_text().strip()
    if how == "hang":
        time.sleep(3600)
    sys.stdout.write(SAYS[how] + "\n")
    sys.exit(int(how))
gpus = json.loads(pathlib.Path("/etc/rig-gpus.json").read_text())
held = list(holders())
for gpu in gpus:
    for index, pid, used, name in held:
        if index == gpu["index"]:
            app = {"gpu_uuid": gpu["uuid"], "pid": pid, "used_memory": str(used)}
            gpu["apps"].append({**app, "process_name": name})
            gpu["memory.used"] = str(int(gpu["memory.used"]) + used)
if sys.argv[1:] == ["-L"]:
    for gpu in gpus:
        sys.stdout.write(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n")
for word in sys.argv[1:]:
    option, _, fields = word.partition("=")
    rows = {"--query-gpu": gpus, "--query-compute-apps": [a for g in gpus for a in g["apps"]]}
    for row in rows.get(option, []):
        sys.stdout.write(", ".join(row[field] for field in fields.split(",")) + "\n")
