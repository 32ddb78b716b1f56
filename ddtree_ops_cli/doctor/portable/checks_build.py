"""Checks of what was installed: compiled kernels against PyTorch, versions, the patch set."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .checks import ADVISORY, BLOCKING, Check, Facts, NotChecked
from .fatbin import parsed, runs_on
from .libraries import numbers

# Libraries whose soname carries CUDA's own major version; others count for themselves.
_CUDA_LIBRARY = re.compile(
    r"^lib(?:cudart|nvrtc|nvrtc-builtins|cublas|cublasLt|nvJitLink|cupti|nppc)\.so\.(\d+)"
)
_DRIVERS_OWN = ("libcuda.so.1", "libnvidia-ml.so.1")
_NAMED = 4
"""Of a long list, this many are named."""


def _libraries(facts: Facts) -> Mapping[str, Mapping[str, Any]]:
    """Those that could be read. Raises NotChecked if there are none."""
    found: Mapping[str, Mapping[str, Any]] = facts.get("kernels", "libraries")
    read = {name: library for name, library in found.items() if "unknown" not in library}
    if not read:
        raise NotChecked("sgl_kernel has no compiled library here")
    return read


def loaded_first(arch: int) -> str:
    """The folder of the operators that sgl_kernel loads on a GPU (its load_utils.py, 0.4.5)."""
    return "sm90" if arch == 90 else "sm100"


def _kernel_libraries(facts: Facts) -> Iterator[str]:
    for name, library in facts.get("kernels", "libraries").items():
        if "unknown" in library:
            yield f"{name} cannot be read: {library['unknown']}"


def _kernel_images(facts: Facts) -> Iterator[str]:
    arch = facts.arch()
    libraries = _libraries(facts)
    wanted = f"{loaded_first(arch)}/common_ops"
    mine = [name for name in libraries if name.startswith(wanted)]
    if not mine:
        yield f"sgl_kernel has no {wanted}*.so, which a GPU of sm_{arch} loads"
    for name in mine:
        yield from _gaps(name, libraries[name], arch)


def _kernel_op_gaps(facts: Facts) -> Iterator[str]:
    arch = facts.arch()
    for name, library in _libraries(facts).items():
        if "/common_ops" not in name:
            yield from _gaps(name, library, arch)


def _gaps(name: str, library: Mapping[str, Any], arch: int) -> Iterator[str]:
    whole = sum(group["containers"] for group in library["images"])
    for group in library["images"]:
        if not any(runs_on(parsed(image), arch) for image in group["images"]):
            yield (
                f"{name}: {group['containers']} of {whole} kernel groups have images for "
                f"{' '.join(group['images'])} and none for sm_{arch}"
            )


def _kernel_import(facts: Facts) -> Iterator[str]:
    for name, error in facts.get("imports", "errors").items():
        if error:
            yield f"import {name}: {error}"


def _torch_symbols(facts: Facts) -> Iterator[str]:
    torch = facts.peek("torch").get("version", "installed")
    less = facts.get("kernels", "torch_libraries")
    build = f" (a build without {', '.join(less)})" if less else ""
    for name, library in _libraries(facts).items():
        if library["missing"]:
            first = "; ".join(library["missing_first"][:_NAMED])
            yield (
                f"{name} needs {library['missing']} symbols that PyTorch {torch}{build} does "
                f"not have: {first}"
            )


def _cxx11(facts: Facts) -> Iterator[str]:
    words = {True: "the new", False: "the old"}
    torch = bool(facts.get("torch", "cxx11"))
    for name, library in _libraries(facts).items():
        if library["cxx11"] is not None and library["cxx11"] != torch:
            yield (
                f"{name} was compiled for {words[library['cxx11']]} C++11 ABI, "
                f"PyTorch for {words[torch]}"
            )


def _cuda_major(facts: Facts) -> Iterator[str]:
    cuda = numbers(str(facts.get("torch", "cuda")))[0]
    for name, library in _libraries(facts).items():
        matches = [match for one in library["needed"] if (match := _CUDA_LIBRARY.match(one))]
        others = [match.group(0) for match in matches if int(match.group(1)) != cuda]
        if others:
            yield f"{name} needs {', '.join(others)}; PyTorch is for CUDA {cuda}"


def _libraries_found(facts: Facts) -> Iterator[str]:
    for name, library in _libraries(facts).items():
        absent = [one for one in library["absent"] if one not in _DRIVERS_OWN]
        if absent:
            yield f"{name} needs {', '.join(absent)}, which is nowhere here"


def _machine(facts: Facts) -> Iterator[str]:
    here = facts.get("system", "architecture")
    for name, library in _libraries(facts).items():
        if library["machine"] != here:
            yield f"{name} is for {library['machine']}; this is {here}"


def _glibc(facts: Facts) -> Iterator[str]:
    here = str(facts.get("system", "glibc"))
    for name, library in _libraries(facts).items():
        floor = library["floors"].get("GLIBC")
        if floor and numbers(floor) > numbers(here):
            yield f"{name} needs glibc {floor}; here is {here}"


def _libstdcxx(facts: Facts) -> Iterator[str]:
    here = facts.section("libstdcxx")
    for name, library in _libraries(facts).items():
        for family in ("GLIBCXX", "CXXABI"):
            floor = library["floors"].get(family)
            if floor and numbers(floor) > numbers(here.get(family, "0")):
                yield f"{name} needs {family}_{floor}; {here['path']} has {here.get(family)}"


CHECKS = (
    Check(
        "kernel-libraries",
        BLOCKING,
        "every library of sgl_kernel can be read",
        "A cut-off download or layer: the import crashes or fails.",
        "Reinstall sglang-kernel, or build the image anew.",
        '"file too short" or "invalid ELF header" at import',
        "https://man7.org/linux/man-pages/man3/dlopen.3.html",
        _kernel_libraries,
    ),
    Check(
        "kernel-images",
        BLOCKING,
        "sgl_kernel's operators have images for this GPU",
        "An operator without one fails at its first call, perhaps hours after the start.",
        "Install the sglang-kernel that SGLang pins, for the image's CUDA; do not build it with "
        "another TORCH_CUDA_ARCH_LIST.",
        '"no kernel image is available" from one operator while others run',
        "sgl-project/sglang#38515",
        _kernel_images,
    ),
    Check(
        "kernel-op-gaps",
        ADVISORY,
        "the optional kernel libraries have images for this GPU",
        "What they implement cannot be chosen on this GPU: flash_ops is FlashAttention-3, "
        "flashmla_ops is MLA, infllm_ops is sparse attention. Trees need none of them.",
        "Keep `engine.attention_backend: triton`.",
        "a backend that loads and then fails at the first request",
        "sgl-project/sglang#38515",
        _kernel_op_gaps,
    ),
    Check(
        "kernel-import",
        BLOCKING,
        "sgl_kernel, FlashInfer and SGLang can be imported",
        "SGLang does not start.",
        "An undefined c10:: or at:: symbol: install the sglang-kernel that was built for this "
        "PyTorch. A library that cannot be opened: the wheel of the other CUDA major.",
        '"ImportError: undefined symbol: _ZN3c10..."',
        "sgl-project/sglang#29317",
        _kernel_import,
    ),
    Check(
        "torch-symbols",
        BLOCKING,
        "PyTorch has every symbol that sgl_kernel was linked against",
        "The kernels were built for another PyTorch; even a patch level can differ.",
        "Install the PyTorch that SGLang pins (`pip show sglang`), or the sglang-kernel for yours.",
        '"undefined symbol: _ZNK3c10..." after an upgrade of PyTorch alone',
        "sgl-project/sglang#18203",
        _torch_symbols,
    ),
    Check(
        "cxx11-abi",
        BLOCKING,
        "sgl_kernel and PyTorch use one C++11 ABI",
        "std::string has two layouts; mixed, symbols are missing or memory is misread.",
        "Install both from wheels of one build; wheels of PyTorch use the new ABI from 2.7 on.",
        '"undefined symbol" with Ss or __cxx11 in it',
        "sgl-project/sglang#5100",
        _cxx11,
    ),
    Check(
        "cuda-major",
        BLOCKING,
        "sgl_kernel needs the CUDA major that PyTorch has",
        "The wheel is the other CUDA's.",
        "CUDA 13: `sglang-kernel` from PyPI; CUDA 12.9: the cu129 index that SGLang's "
        "documentation names.",
        '"libcudart.so.12: cannot open shared object file"',
        "sgl-project/sglang#16052",
        _cuda_major,
    ),
    Check(
        "libraries-found",
        BLOCKING,
        "every library that sgl_kernel needs is here",
        'The import ends with "cannot open shared object file".',
        "Install the nvidia-* packages that PyTorch asks for (no `--no-deps`), in the same Python.",
        '"libnvrtc.so.13: cannot open shared object file"',
        "sgl-project/sglang#13198",
        _libraries_found,
    ),
    Check(
        "architecture",
        BLOCKING,
        "sgl_kernel was compiled for this processor",
        "An image of another architecture was pulled or copied.",
        "Build the image on the host, or take the base for its architecture.",
        '"exec format error", or "wrong ELF class" at import',
        "vllm-project/aibrix#2054",
        _machine,
    ),
    Check(
        "glibc-floor",
        BLOCKING,
        "glibc is new enough for sgl_kernel",
        "The loader refuses the library.",
        "Take a base with a newer glibc (Ubuntu 24.04 has 2.39).",
        '"version `GLIBC_2.32\' not found"',
        "huggingface/lerobot#2219",
        _glibc,
    ),
    Check(
        "libstdcxx-floor",
        BLOCKING,
        "libstdc++ is new enough for sgl_kernel",
        "The loader refuses the library; conda often brings an old libstdc++ of its own.",
        "Take a newer libstdc++6, or remove the older one from LD_LIBRARY_PATH.",
        '"version `GLIBCXX_3.4.32\' not found"',
        "kvcache-ai/ktransformers#439",
        _libstdcxx,
    ),
)
