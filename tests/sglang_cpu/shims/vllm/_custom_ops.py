"""See the package."""


def rotary_embedding(*_args, **_kwargs):
    raise NotImplementedError("the CPU engine rotates with PyTorch")
