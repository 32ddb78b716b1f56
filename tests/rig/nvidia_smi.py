#!/usr/bin/python3
"""Stands in for nvidia-smi on a rig host: answers its queries, or fails as the real one does.

/etc/rig-gpus.json is a list of GPUs, each `{field: text, ..., "apps": [{field: text}]}` with the
field names of --query-gpu and --query-compute-apps; /etc/rig-nvidia-smi holds an exit code to
fail with, or `hang`.
"""

import json
import pathlib
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

fault = pathlib.Path("/etc/rig-nvidia-smi")
if fault.exists():
    how = fault.read_text().strip()
    if how == "hang":
        time.sleep(3600)
    sys.stdout.write(SAYS[how] + "\n")
    sys.exit(int(how))
gpus = json.loads(pathlib.Path("/etc/rig-gpus.json").read_text())
for word in sys.argv[1:]:
    option, _, fields = word.partition("=")
    rows = {"--query-gpu": gpus, "--query-compute-apps": [a for g in gpus for a in g["apps"]]}
    for row in rows.get(option, []):
        sys.stdout.write(", ".join(row[field] for field in fields.split(",")) + "\n")
