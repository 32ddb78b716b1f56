"""What is only known by trying: imports, a kernel on the GPU, a Triton and an nvcc compile.

Each trial is a Python of its own, so that a crash or a hang is a fact and not the end.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .asking import ABSENT, ask, ask_python
from .libraries import demangled, package_folder

_TORCH = """
import json, torch
found = {
    "version": torch.__version__,
    "cuda": torch.version.cuda,
    "cxx11": bool(torch._C._GLIBCXX_USE_CXX11_ABI),
    "archs": [],
    "cudnn": None,
    "devices": [],
    "ran": None,
}
if torch.version.cuda:
    found["archs"] = (torch._C._cuda_getArchFlags() or "").split()
    try:
        found["cudnn"] = torch.backends.cudnn.version()
    except RuntimeError as error:
        found["cudnn_error"] = str(error).splitlines()[0]
    for index in range(torch.cuda.device_count()):
        seen = torch.cuda.get_device_properties(index)
        found["devices"].append({
            "name": seen.name,
            "arch": seen.major * 10 + seen.minor,
            "shared_bytes": getattr(seen, "shared_memory_per_block_optin", None),
            "uuid": str(getattr(seen, "uuid", "")) or None,
        })
    try:
        found["ran"] = "yes" if float(torch.ones(64, device="cuda").sum()) == 64.0 else "wrong sum"
    except Exception as error:
        found["ran"] = str(error).strip().splitlines()[0]
print(json.dumps(found))
"""

_IMPORT = """
import importlib, json, sys
found = {}
for name in sys.argv[1:] or %r:
    try:
        importlib.import_module(name)
        found[name] = None
    except BaseException as error:
        found[name] = (type(error).__name__ + ": " + str(error)).strip()
print(json.dumps({"errors": found}))
"""
_IMPORTED = ["sgl_kernel", "flashinfer", "sglang.srt.server_args"]

_TRITON = """
import json, sys
sys.path.insert(0, %(folder)r)
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import ddtree_doctor_kernel as kernel
found = {"version": triton.__version__}
try:
    from triton.backends.nvidia.compiler import get_ptxas
    chosen = get_ptxas(%(arch)d)
    found["ptxas"] = chosen.path
    found["ptxas_version"] = chosen.version
except Exception as error:
    found["ptxas_error"] = str(error).splitlines()[0]
try:
    source = ASTSource(
        kernel.double, {"x_ptr": "*fp32", "SIZE": "constexpr"}, {(1,): 128}
    )
    built = triton.compile(source, target=GPUTarget("cuda", %(arch)d, 32))
    found["cubin_bytes"] = len(built.asm["cubin"])
except Exception as error:
    found["error"] = " ".join(str(error).split())[-600:] or type(error).__name__
print(json.dumps(found))
"""
_TRITON_KERNEL = """
import triton
import triton.language as tl


@triton.jit
def double(x_ptr, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    tl.store(x_ptr + at, 2 * tl.load(x_ptr + at))
"""

# The patch set's kernels at the vocabulary and block of Qwen3.6-27B; Triton's cache then says
# what each needs.
_PATCH_KERNELS = """
import json, torch
from sglang.srt.speculative.ddtree import candidates, tree
for budget in (16, 64):
    shape = tree.TreeShape(budget, 15, 8, budget // 4)
    logits = torch.randn((15, 248320), dtype=torch.bfloat16, device="cuda")
    ranked, tokens = candidates.rank_logits(logits, 8)
    one = torch.zeros((1,), dtype=torch.int64, device="cuda")
    slots = torch.zeros((1, 512), dtype=torch.int32, device="cuda")
    built = tree.build_tree(
        ranked, tokens, shape, roots=one, prefix_lens=one, pool_indices=one, req_to_token=slots
    )
    mask = torch.zeros((shape.nodes * shape.nodes,), dtype=torch.uint8, device="cuda")
    tree.fill_tree_mask(built, one, shape, mask)
torch.cuda.synchronize()
print(json.dumps({"ran": True}))
"""

_CUDA_SOURCE = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'


def torch() -> dict[str, Any]:
    if package_folder("torch") is None:
        return {"unknown": "PyTorch is not installed here"}
    return ask_python(_TORCH, timeout_s=180)


def imports(names: list[str] | None = None) -> dict[str, Any]:
    """The error of each import, C++ names in it demangled, or None where it succeeded.

    `names` are imported as they are; without them, those that SGLang needs and that are here.
    """
    wanted = names or [
        name for name in _IMPORTED if package_folder(name.partition(".")[0]) is not None
    ]
    if not wanted:
        return {"unknown": "neither sgl_kernel nor SGLang is installed here"}
    # One child for each: the first may end the process.
    errors: dict[str, Any] = {}
    for name in wanted:
        answer = ask_python(_IMPORT % [name], timeout_s=240)
        said = answer["unknown"] if "unknown" in answer else answer["errors"][name]
        errors[name] = said and _readable(said)
    return {"errors": errors}


def _readable(text: str) -> str:
    """The words of a loader's error, its mangled names as people write them."""
    symbols = re.findall(r"\b_Z\w+", text)
    for mangled, plain in zip(symbols, demangled(symbols)):
        text = text.replace(mangled, plain)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "undefined symbol" in line or "cannot open" in line]
    return (telling or lines or [text])[0].lstrip("- ")[:600]


def triton(arch: int) -> dict[str, Any]:
    """A kernel compiled by Triton's own ptxas for `arch`; no GPU is needed."""
    if package_folder("triton") is None:
        return {"unknown": "Triton is not installed here"}
    with tempfile.TemporaryDirectory(prefix="ddtree-doctor-") as folder:
        (Path(folder) / "ddtree_doctor_kernel.py").write_text(_TRITON_KERNEL)
        return ask_python(
            _TRITON % {"folder": folder, "arch": arch},
            environment={"TRITON_CACHE_DIR": f"{folder}/cache", "TRITON_INTERPRET": "0"},
        )


def patch_kernels() -> dict[str, Any]:
    """Shared memory, in bytes, of each kernel of the patch set on the GPU that is here."""
    sglang = package_folder("sglang")
    if sglang is None or not (sglang / "srt/speculative/ddtree").is_dir():
        return {"unknown": "SGLang has no DDTree modules here"}
    with tempfile.TemporaryDirectory(prefix="ddtree-doctor-") as folder:
        ran = ask_python(_PATCH_KERNELS, environment={"TRITON_CACHE_DIR": folder}, timeout_s=300)
        needed: dict[str, int] = {}
        for file in Path(folder).rglob("*.json"):
            try:
                record = json.loads(file.read_text())
                name, shared = str(record["name"]), int(record["shared"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
            needed[name] = max(needed.get(name, 0), shared)
    return {**ran, "shared_bytes": dict(sorted(needed.items()))}


def jit(arch: int) -> dict[str, Any]:
    """A kernel compiled by the nvcc that run-time compilation would take."""
    nvcc = _nvcc()
    if nvcc is None:
        return {"nvcc": None}
    said = ask([nvcc, "--version"])
    version = re.search(r"release (\d+\.\d+)", said.out)
    found: dict[str, Any] = {"nvcc": nvcc, "version": version.group(1) if version else None}
    with tempfile.TemporaryDirectory(prefix="ddtree-doctor-") as folder:
        source = Path(folder) / "twice.cu"
        source.write_text(_CUDA_SOURCE)
        answer = ask(
            [nvcc, "-cubin", f"-arch=sm_{arch}", "-o", f"{folder}/twice.cubin", str(source)],
            timeout_s=120,
        )
    found["error"] = None if answer.exit_code == 0 else answer.said or "nvcc failed"
    return found


def _nvcc() -> str | None:
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home and os.access(f"{home}/bin/nvcc", os.X_OK):
            return f"{home}/bin/nvcc"
    if found := shutil.which("nvcc"):
        return found
    torch_at = package_folder("torch")
    places = [Path("/usr/local/cuda/bin/nvcc")]
    if torch_at is not None:
        places += sorted(torch_at.parent.glob("nvidia/*/bin/nvcc"))
    return next((str(place) for place in places if os.access(place, os.X_OK)), None)


def ptxas(arch: int) -> dict[str, Any]:
    """Whether an overridden ptxas (TRITON_PTXAS_PATH) is older than the GPU."""
    path = os.environ.get("TRITON_PTXAS_BLACKWELL_PATH" if arch >= 100 else "TRITON_PTXAS_PATH")
    if not path:
        return {"path": None}
    answer = ask([path, "--help"])
    if answer.exit_code == ABSENT:
        return {"path": path, "archs": []}
    return {"path": path, "archs": sorted(set(re.findall(r"sm_(\d+)\b", answer.out)), key=int)}


def numa() -> dict[str, Any]:
    answer = ask_python(
        'import ctypes, json; ctypes.CDLL("libnuma.so.1"); print(json.dumps({"found": True}))'
    )
    return answer if "found" in answer else {"found": False}
