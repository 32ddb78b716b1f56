"""What SGLang and transformers need to import and run on a CPU-only torch. Computes nothing.

Python imports `sitecustomize` by itself from PYTHONPATH, in SGLang's subprocesses too.
"""

import contextlib
import os
import sys
from importlib.abc import MetaPathFinder

_KEPT = []


def _before_torchvision():
    # Its binary is built for CUDA and does not load here; without it two operators lack a schema.
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _KEPT.append(library)


def _before_sglang():
    import torch
    from torch.utils._device import _device_constructors

    on_device = torch.Tensor.record_stream

    def record_stream(tensor, stream):
        if tensor.device.type != "cpu":
            on_device(tensor, stream)

    torch.Tensor.record_stream = record_stream

    # Nothing pins memory without a GPU. A device as a context (transformers loads in one) knows by
    # identity which functions make tensors: it lists them before one is replaced.
    _device_constructors()
    make = torch.tensor
    torch.tensor = lambda *values, pin_memory=False, **options: make(*values, **options)
    torch.cpu.device = lambda *_args, **_kwargs: contextlib.nullcontext()
    if os.environ.get("TRITON_INTERPRET") == "1":
        from triton.runtime.autotuner import Autotuner

        # Nothing to time with: every configuration computes the same, so any will do.
        Autotuner._bench = lambda _self, *_args, config, **_kwargs: [0.0, 0.0, 0.0]
        _quicken_interpreter()


def _quicken_interpreter():
    """Half of a launch is bookkeeping that can be done once."""
    from types import SimpleNamespace

    import triton.language as tl
    from triton.runtime import interpreter

    # It swaps the functions of tl for its own before each launch, and back after it; no code that
    # runs here wants them back.
    swap = interpreter._patch_lang
    swapped = []

    def swap_once(_kernel):
        if not swapped:
            swapped.append(swap(SimpleNamespace(__globals__={"tl": tl, "core": tl.core})))
        return interpreter._LangPatchScope()

    interpreter._patch_lang = swap_once
    if os.environ.get("DDTREE_UNCHECKED_OVERFLOW") == "1":
        # As on a GPU, where integer operations are not checked either.
        interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
            sanitize_overflow=False
        )


class _Before(MetaPathFinder):
    """Runs a hook once, just before a package is first looked for."""

    def __init__(self):
        self.hooks = {"torchvision": _before_torchvision, "sglang": _before_sglang}

    def find_spec(self, name, path=None, target=None):
        hook = self.hooks.pop(name, None)
        if hook is not None:
            hook()


sys.meta_path.insert(0, _Before())
