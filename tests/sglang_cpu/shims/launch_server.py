"""`sglang.launch_server` without the check that `extra_buffer` has a GPU: the interpreter does."""

import runpy

if __name__ == "__main__":
    from sglang.srt.server_args import ServerArgs

    ServerArgs._validate_mamba_extra_buffer = lambda _self, _view, _architecture: None
    runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)
