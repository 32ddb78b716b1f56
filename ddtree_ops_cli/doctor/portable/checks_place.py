"""Checks of the place: the GPUs it got, its limits, the service that is meant, the host's state."""

from __future__ import annotations

from collections.abc import Iterator

from .checks import ADVISORY, BLOCKING, Check, Facts, NotChecked
from .libraries import numbers

_GIB = 1 << 30
_SHM = 1 * _GIB
"""What NVIDIA suggests for NCCL in a container; a deploy gives 16."""
_NOFILE = 4_096
_FREE_DISK = 20 * _GIB
# SGLang 0.5.17: only this backend passes each node's parent to the recurrent layers.
_TREE_BACKENDS = ("triton",)
_XID_GONE = ("79", "48", "62", "63", "64", "74", "94", "95", "119", "120")


def _attention_backend(facts: Facts) -> Iterator[str]:
    if facts.wanted("algorithm") != "DDTREE":
        raise NotChecked("no tree is to run here")
    backend = facts.wanted("attention_backend")
    if backend not in _TREE_BACKENDS:
        yield f"attention_backend is {backend}; a tree needs {' or '.join(_TREE_BACKENDS)}"


def _gpu_pinned(facts: Facts) -> Iterator[str]:
    wanted = str(facts.wanted("gpu_uuid"))
    if not facts.intent.get("container"):
        raise NotChecked("this is no container")
    seen = [card["uuid"] for card in facts.get("gpus", "cards")]
    nodes = facts.get("devices", "nodes")
    if seen != [wanted]:
        yield f"the container sees {', '.join(seen) or 'no GPU'}; {wanted} is meant"
    elif len(nodes) > 1:
        yield f"the container may open {', '.join(nodes)}; one GPU is meant"


def _shm(facts: Facts) -> Iterator[str]:
    facts.engine_runs_here()
    size = int(facts.get("limits", "shm_bytes"))
    if size < _SHM:
        yield f"/dev/shm has {size / _GIB:.2f} GiB; {_SHM // _GIB} GiB are wanted"


def _ulimits(facts: Facts) -> Iterator[str]:
    facts.engine_runs_here()
    limits = facts.section("limits")
    nofile, stack = limits.get("nofile"), limits.get("stack")
    if nofile is not None and nofile < _NOFILE:
        yield f"open files are limited to {nofile:,}; {_NOFILE:,} are wanted"
    if stack is not None and stack < 8 << 20:
        yield f"the stack is limited to {stack >> 10:,} KiB; 8,192 KiB are wanted"


def _memlock(facts: Facts) -> Iterator[str]:
    facts.engine_runs_here()
    limit = facts.section("limits").get("memlock")
    if limit is not None and limit < 64 << 20:
        yield f"locked memory is limited to {limit >> 10:,} KiB"


def _deepgemm(facts: Facts) -> Iterator[str]:
    arch = facts.arch()
    if arch // 10 != 12:
        return
    facts.section("pins")
    if facts.section("environment").get("SGLANG_ENABLE_JIT_DEEPGEMM") != "0":
        yield f"DeepGEMM has no recipe for sm_{arch}, and SGLANG_ENABLE_JIT_DEEPGEMM is not 0"


def _fp4(facts: Facts) -> Iterator[str]:
    arch = facts.arch()
    if arch // 10 == 12 and "fp4" in str(facts.wanted("quantization")).lower():
        yield f"FP4 weights on sm_{arch}: FlashInfer's FP4 kernels gave NaN there"


def _peer_to_peer(facts: Facts) -> Iterator[str]:
    if len(facts.get("gpus", "cards")) < 2:
        return
    kinds = facts.get("links", "iommu")
    translated = {kind: count for kind, count in kinds.items() if kind.startswith("DMA")}
    if translated:
        words = ", ".join(f"{count} groups of type {kind}" for kind, count in translated.items())
        yield f"the IOMMU translates ({words}): copies between GPUs may hang or be wrong"


def _xid(facts: Facts) -> Iterator[str]:
    lines = facts.get("kernel_log", "xid")
    for line in lines[-3:]:
        number = line.partition("): ")[2].partition(",")[0]
        grave = "; the GPU may be lost" if number in _XID_GONE else ""
        yield f"{line[:160]}{grave}"


def _persistence(facts: Facts) -> Iterator[str]:
    for card in facts.get("gpus", "cards"):
        if card["persistence_mode"] == "Disabled":
            yield f"GPU {card['index']}: persistence mode is off; each first start is slow"


def _power(facts: Facts) -> Iterator[str]:
    for card in facts.get("gpus", "cards"):
        now, usual = numbers(card["power.limit"]), numbers(card["power.default_limit"])
        if now and usual and now < usual:
            yield f"GPU {card['index']} may draw {now[0]} W; its default is {usual[0]} W"


def _numa(facts: Facts) -> Iterator[str]:
    facts.section("pins")
    if not facts.get("numa", "found"):
        yield "libnuma.so.1 is not here"


def _disk(facts: Facts) -> Iterator[str]:
    for folder, disk in facts.get("disks", "folders").items():
        if disk["free_bytes"] < _FREE_DISK:
            yield f"{folder} has {disk['free_bytes'] / _GIB:.1f} GiB free; an image needs about 20"


def _clock(facts: Facts) -> Iterator[str]:
    if not facts.get("clock", "synchronised"):
        yield "nothing keeps the clock right"


def _root(facts: Facts) -> Iterator[str]:
    if not facts.intent.get("container"):
        raise NotChecked("this is no container")
    if facts.get("system", "user") == 0:
        yield "the container runs as root"


CHECKS = (
    Check(
        "attention-backend",
        BLOCKING,
        "the attention backend can verify a tree",
        "Others verify a tree as if it were a chain, or refuse to start: trtllm_mha decodes only "
        "with topk 1, FlashAttention-3 does not run on Blackwell.",
        "`engine: {attention_backend: triton}` in the service profile.",
        "a hybrid target whose siblings share recurrent state: fluent text, wrong tokens",
        "sgl-project/sglang#27463",
        _attention_backend,
    ),
    Check(
        "gpu-pinned",
        BLOCKING,
        "the container has its GPU, and only it",
        "It would load onto a neighbour's GPU, or its memory would be counted against both.",
        "Pin by UUID (`--gpus device=GPU-...`) and leave NVIDIA_VISIBLE_DEVICES out of the image.",
        "a container that lost its GPU, or sees all of them, after `systemctl daemon-reload`",
        "NVIDIA/nvidia-container-toolkit#48",
        _gpu_pinned,
    ),
    Check(
        "shm-size",
        BLOCKING,
        "/dev/shm is large enough",
        "Workers and NCCL exchange through it; full, they end with SIGBUS.",
        "`container: {shm_size: ...}` in the service profile, or `--ipc host`.",
        '"Bus error" or an NCCL failure in the middle of a run',
        "sgl-project/sglang#4259",
        _shm,
    ),
    Check(
        "ulimits",
        BLOCKING,
        "the limits of files and stack are high enough",
        "Many connections need many files; the compilers need stack.",
        "`--ulimit nofile=65536 --ulimit stack=67108864` for the container.",
        '"Too many open files" under load',
        "https://docs.docker.com/engine/containers/run/",
        _ulimits,
    ),
    Check(
        "memlock",
        ADVISORY,
        "memory may be locked",
        "Pinned buffers for copies between hosts and GPUs cannot be made.",
        "`--ulimit memlock=-1` for the container, where the host allows it.",
        "slow copies, or NCCL falling back",
        "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
        _memlock,
    ),
    Check(
        "deepgemm",
        ADVISORY,
        "DeepGEMM is switched off where it has no kernels",
        "FP8 models fail at their first matrix product on sm_120.",
        "`SGLANG_ENABLE_JIT_DEEPGEMM=0`; this project's image sets it.",
        "a failure in DeepGEMM after the weights were loaded",
        "sgl-project/sglang#28552",
        _deepgemm,
    ),
    Check(
        "fp4",
        ADVISORY,
        "FP4 weights are not used where they give NaN",
        "Output is empty or repeats one token.",
        "Take bf16 or FP8 weights, or run `ddtree smoke` before you trust the output.",
        "NaN from FP4 kernels on sm_120",
        "flashinfer-ai/flashinfer#2708",
        _fp4,
    ),
    Check(
        "peer-to-peer",
        ADVISORY,
        "copies between GPUs are not translated by an IOMMU",
        "Tensor parallelism hangs or computes garbage on boards without passthrough.",
        "`iommu=pt` or `amd_iommu=off` on the kernel's command line; one GPU a service is safe.",
        "a hang in NCCL's first all-reduce",
        "vllm-project/vllm#33041",
        _peer_to_peer,
    ),
    Check(
        "xid",
        ADVISORY,
        "the kernel log has no Xid",
        "The driver has reported faults of a GPU since the host started.",
        "Look the number up in NVIDIA's Xid catalogue; 79 and 119 need a reboot or another slot.",
        "a GPU that fails under load, looked for in the software",
        "NVIDIA/open-gpu-kernel-modules#1159",
        _xid,
    ),
    Check(
        "persistence",
        ADVISORY,
        "persistence mode is on",
        "Without it the driver forgets the GPU whenever no program uses it.",
        "`sudo nvidia-smi -pm 1`, or the service nvidia-persistenced.",
        "seconds of delay, and clocks that differ from run to run of a measurement",
        "https://docs.nvidia.com/deploy/driver-persistence/",
        _persistence,
    ),
    Check(
        "power-limit",
        ADVISORY,
        "the power limit is the GPU's default",
        "A lower limit costs speed; a comparison between hosts is then unfair.",
        "`sudo nvidia-smi -pl WATT`, if it was not set on purpose.",
        "15 % less speed blamed on the software",
        "flashinfer-ai/flashinfer#2899",
        _power,
    ),
    Check(
        "libnuma",
        ADVISORY,
        "libnuma is installed",
        "SGLang's kernels cannot bind to the memory next to the GPU, and some imports fail.",
        "`apt-get install libnuma1` in the image.",
        '"libnuma.so.1: cannot open shared object file"',
        "sgl-project/sglang#15355",
        _numa,
    ),
    Check(
        "disk",
        ADVISORY,
        "there is disk for another image",
        "The next build or copy ends in the middle.",
        "`ddtree image prune`.",
        "a disk filled by the images of earlier deploys",
        "basecamp/kamal#1655",
        _disk,
    ),
    Check(
        "clock",
        ADVISORY,
        "the clock is kept right",
        "Certificates, logs and measurements of several hosts do not fit together.",
        "Run chrony or systemd-timesyncd.",
        "logs of two hosts that cannot be compared",
        "https://www.man7.org/linux/man-pages/man2/adjtimex.2.html",
        _clock,
    ),
    Check(
        "not-root",
        ADVISORY,
        "the container does not run as root",
        "A fault in the engine reaches further than it has to.",
        "Use this project's image, whose user is `sglang`, or `--user` with a numeric id.",
        "files of root in a mounted model folder",
        "https://docs.docker.com/build/building/best-practices/#user",
        _root,
    ),
)
