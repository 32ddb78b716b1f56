"""`python3 -m sglang.launch_server` of the rig's image: the lab engine, or one of its faults.

RIG_FAULT, which a variant of the image sets, is one of:

    dies     ends during the start, with colours and other alphabets in its last words
    hangs    never listens
    deaf     listens and answers /health, while its engine answers nothing
    out-of-memory   takes memory until the kernel ends it
"""

import os
import pathlib
import sys
import time

from ddtree_ops_cli.lab import server

LIMITS = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max")


def dies():
    sys.stderr.write("\x1b[32m[2026-01-01 00:00:00]\x1b[0m Load weight begin. avail mem=94.97 GB\n")
    sys.stderr.write("\x1b[31mLe modèle ne tient pas — 模型加载失败 🚫\x1b[0m\n")
    raise RuntimeError("CUDA error: no kernel image is available for execution on the device")


def hangs():
    sys.stderr.write("Load weight begin. avail mem=94.97 GB\n")
    time.sleep(3600)


def deaf():
    from ddtree_ops_cli.lab.decode import Engine

    def generate(self, prompt, sampling):
        sys.stderr.write("Scheduler hit an exception: CUDA error: an illegal memory access\n")
        time.sleep(3600)
        yield

    Engine.generate = generate


def out_of_memory():
    limits = [int(text) for file in map(pathlib.Path, LIMITS) if file.exists()
              and (text := file.read_text().strip()).isdigit()]  # fmt: skip
    if min(limits, default=2**62) > 2**30:
        sys.exit("no limit of memory up to 1 GiB: this would take the machine's")
    taken = []
    while True:
        taken.append(os.urandom(2**22))


FAULTS = {"dies": dies, "hangs": hangs, "deaf": deaf, "out-of-memory": out_of_memory}
if fault := os.environ.get("RIG_FAULT"):
    FAULTS[fault]()
sys.exit(server.main())
