"""Checks of driver, CUDA and the GPU itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .checks import ADVISORY, BLOCKING, Check, Facts, NotChecked
from .fatbin import parsed, runs_on
from .libraries import numbers

# CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor
# Version Compatibility", Linux.
_OLDEST_DRIVER = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}


def _driver_answers(facts: Facts) -> Iterator[str]:
    gpus = facts.peek("gpus")
    if reason := facts.intent.get("no_gpu"):
        raise NotChecked(str(reason))
    if "unknown" in gpus:
        yield f"nvidia-smi (exit code {gpus.get('exit_code')}): {gpus['unknown']}"
    elif not gpus.get("cards"):
        yield "nvidia-smi lists no GPU"


def _driver_version(facts: Facts) -> str:
    """The running driver's, which is the kernel module's."""
    module = facts.peek("driver").get("module")
    if module:
        return str(module)
    cards = facts.get("gpus", "cards")
    if not cards:
        raise NotChecked("nvidia-smi lists no GPU")
    return str(cards[0]["driver_version"])


def _driver_cuda(facts: Facts) -> Iterator[str]:
    cuda = str(facts.get("torch", "cuda"))
    oldest = _OLDEST_DRIVER.get(numbers(cuda)[0])
    version = _driver_version(facts)
    if oldest is None:
        raise NotChecked(f"no driver version is known for CUDA {cuda}")
    if numbers(version) < numbers(oldest):
        yield f"driver {version}; CUDA {cuda} needs {oldest} or newer"


def _compat_library(facts: Facts) -> Iterator[str]:
    libcuda = facts.get("driver", "libcuda")
    if "real" not in libcuda or not libcuda["real"]:
        raise NotChecked(str(libcuda.get("unknown", "libcuda.so.1 was not found")))
    real = str(libcuda["real"])
    shipped = re.search(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)$", real)
    version = _driver_version(facts)
    if "/compat/" in real:
        yield f"programs get {real}, a compat library, over driver {version}"
    elif shipped and numbers(shipped.group(1)) != numbers(version):
        yield f"programs get {real}, but the kernel runs driver {version}"


def _cuda_starts(facts: Facts) -> Iterator[str]:
    facts.section("gpus")
    libcuda = facts.get("driver", "libcuda")
    if "init" in libcuda and libcuda["init"] != 0:
        yield f"cuInit fails with error {libcuda['init']}"
    elif "init" not in libcuda:
        yield f"libcuda.so.1 does not load: {libcuda.get('unknown')}"
    ran = facts.peek("torch").get("ran")
    if ran not in (None, "yes"):
        yield f"PyTorch's first kernel failed: {ran}"


def _torch_arch(facts: Facts) -> Iterator[str]:
    archs = facts.get("torch", "archs")
    if not archs:
        yield "PyTorch was built without CUDA: no architecture at all"
        return
    arch = facts.arch()
    if not any(runs_on(parsed(name), arch) for name in archs):
        yield f"PyTorch was built for {' '.join(archs)}; this GPU is sm_{arch}"


def _shared_memory(facts: Facts) -> Iterator[str]:
    needed = facts.peek("patch_kernels").get("shared_bytes") or {}
    if not needed:
        facts.section("patch_kernels")
        raise NotChecked("no kernel of the patch set left a record")
    limit = _shared_limit(facts)
    for name, count in needed.items():
        if count > limit:
            yield f"{name} needs {count:,} B of shared memory; sm_{facts.arch()} has {limit:,} B"


def _shared_limit(facts: Facts) -> int:
    """Bytes per block. CUDA C++ Programming Guide, "Technical Specifications per Compute
    Capability": what a block may opt in to; PyTorch's own figure where it is there."""
    seen = facts.peek("torch").get("devices") or []
    for device in seen:
        if device.get("arch") == facts.arch() and device.get("shared_bytes"):
            return int(device["shared_bytes"])
    known = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448, 100: 232_448, 103: 232_448,
             120: 101_376, 121: 101_376}  # fmt: skip
    if facts.arch() not in known:
        raise NotChecked(f"the shared memory of sm_{facts.arch()} is not known")
    return known[facts.arch()]


def _triton_compile(facts: Facts) -> Iterator[str]:
    triton = facts.section("triton")
    if triton.get("error"):
        where = f" (ptxas: {triton['ptxas']})" if triton.get("ptxas") else ""
        yield f"Triton {triton.get('version')} cannot compile for sm_{facts.arch()}: " + (
            f"{triton['error']}{where}"
        )


def _ptxas_override(facts: Facts) -> Iterator[str]:
    ptxas = facts.section("ptxas")
    if ptxas.get("path") and str(facts.arch()) not in ptxas["archs"]:
        known = " ".join(ptxas["archs"]) or "nothing: it does not run"
        yield f"{ptxas['path']} does not know sm_{facts.arch()}; it knows {known}"


def _jit_compile(facts: Facts) -> Iterator[str]:
    jit = facts.section("jit")
    if jit.get("nvcc") is None:
        facts.engine_runs_here()
        yield "there is no nvcc: kernels that are compiled at run time cannot be"
    elif jit.get("error"):
        yield f"nvcc {jit.get('version')} cannot compile for sm_{facts.arch()}: {jit['error']}"


def _cudnn(facts: Facts) -> Iterator[str]:
    torch = facts.section("torch")
    if torch.get("cudnn_error"):
        yield f"cuDNN: {torch['cudnn_error']}"
        return
    version, pinned = facts.get("torch", "cudnn"), _cudnn_package(facts)
    if pinned and numbers(pinned)[:2] != (version // 10000, version // 100 % 100):
        yield f"PyTorch loads cuDNN {version}, but nvidia-cudnn {pinned} is installed"


def _cudnn_package(facts: Facts) -> str | None:
    versions = facts.get("packages", "versions")
    found = [v for name, v in versions.items() if name.startswith("nvidia-cudnn-cu")]
    return str(found[0]) if found else None


CHECKS = (
    Check(
        "driver-answers",
        BLOCKING,
        "the NVIDIA driver answers and sees a GPU",
        "Nothing can run on a GPU here.",
        "On the host: `nvidia-smi`, then `sudo modprobe nvidia` or a reboot after a driver update. "
        "In a container: start it with `--gpus`.",
        "a deploy that starts, finds no GPU and restarts for ever",
        "gpustack/gpustack#4871",
        _driver_answers,
    ),
    Check(
        "driver-cuda",
        BLOCKING,
        "the driver is new enough for the image's CUDA",
        "The CUDA runtime refuses to start on an older driver (error 35 or 803).",
        "Update the driver on the host, or build the image on an older CUDA.",
        '"CUDA driver version is insufficient for CUDA runtime version"',
        "gpustack/gpustack#4871",
        _driver_cuda,
    ),
    Check(
        "compat-library",
        BLOCKING,
        "programs get the libcuda of the running driver",
        "A library of another version than the kernel module fails at cuInit (803), or hides that "
        "the driver is too old.",
        "Remove /usr/local/cuda*/compat from LD_LIBRARY_PATH and ld.so.conf.d in the image; after "
        "a driver update reboot the host.",
        '"system has unsupported display driver / cuda driver combination" (error 803)',
        "NVIDIA/nvidia-docker#1256",
        _compat_library,
    ),
    Check(
        "cuda-starts",
        BLOCKING,
        "CUDA starts and a first kernel runs",
        "The pieces are there, but the GPU does no work.",
        "The error names the cause; see `dmesg | grep Xid` on the host.",
        '"no kernel image is available for execution on the device" at the first request',
        "sgl-project/sglang#7249",
        _cuda_starts,
    ),
    Check(
        "torch-arch",
        BLOCKING,
        "PyTorch was built for this GPU",
        "No kernel of PyTorch's own runs on this GPU.",
        "Install PyTorch from the CUDA 12.8 index or a newer one (cu130 for this project's image).",
        '"no kernel image is available for execution on the device"',
        "sgl-project/sglang#7249",
        _torch_arch,
    ),
    Check(
        "triton-compile",
        BLOCKING,
        "Triton compiles a kernel for this GPU",
        "Attention and the patch set's kernels are Triton's: nothing of a tree runs without.",
        "Install the Triton that this PyTorch pins (3.6.0 for torch 2.11.0); unset TRITON_PTXAS_*.",
        "\"ptxas fatal: Value 'sm_120' is not defined for option 'gpu-name'\"",
        "triton-lang/triton#8539",
        _triton_compile,
    ),
    Check(
        "ptxas-override",
        BLOCKING,
        "a ptxas that a variable names knows this GPU",
        "Triton takes this assembler in place of its own, and it is too old.",
        "Unset TRITON_PTXAS_PATH (TRITON_PTXAS_BLACKWELL_PATH), or point it to CUDA 12.9 or newer.",
        "\"ptxas fatal: Value 'sm_120' is not defined for option 'gpu-name'\"",
        "triton-lang/triton#8539",
        _ptxas_override,
    ),
    Check(
        "jit-compile",
        BLOCKING,
        "nvcc compiles for this GPU",
        "FlashInfer and SGLang compile some kernels when they are first needed; those fail then.",
        "Put CUDA 12.9 or newer with nvcc and a C++ compiler into the image, and CUDA_HOME on it.",
        '"requires sm75 or higher", where nvcc is too old to know the GPU',
        "flashinfer-ai/flashinfer#3633",
        _jit_compile,
    ),
    Check(
        "shared-memory",
        BLOCKING,
        "the patch set's kernels fit into this GPU's shared memory",
        "sm_120 has 101,376 B for a block where sm_90 and sm_100 have 232,448 B.",
        "Lower `speculative.budget` or `topk_cap` in the service profile.",
        '"OutOfResources: shared memory, Required ..., Hardware limit: 101376"',
        "sgl-project/sglang#14311",
        _shared_memory,
    ),
    Check(
        "cudnn",
        ADVISORY,
        "PyTorch loads the cuDNN that was installed for it",
        "Another cuDNN earlier on the library path is used instead; vision towers convolve.",
        "Remove the other cuDNN from LD_LIBRARY_PATH.",
        "silent slow or failing convolutions after a base image brings a cuDNN of its own",
        "invoke-ai/InvokeAI#6052",
        _cudnn,
    ),
)
