"""The files of SGLang that the set changes, and the first digits of their SHA-256 after it.

Written by tools/refresh_manifest.py.
"""

PATCHED = {
    "sglang/srt/managers/detokenizer_manager.py": "e6280a3a4a1a6cbb",
    "sglang/srt/managers/io_struct.py": "d65c9f69406285a1",
    "sglang/srt/managers/multi_tokenizer_mixin.py": "ccadc3ed883b063a",
    "sglang/srt/managers/schedule_batch.py": "4c80e7a255a70f9b",
    "sglang/srt/managers/scheduler_components/batch_result_processor.py": "45f2332e1cb5c96a",
    "sglang/srt/managers/scheduler_components/output_streamer.py": "b63e2caab496c2d7",
    "sglang/srt/managers/tokenizer_manager.py": "a9aedce6cfc790c7",
    "sglang/srt/managers/utils.py": "d17af5e870897c5d",
    "sglang/srt/mem_cache/allocation_sizing.py": "3a655c72e9ab1d5f",
    "sglang/srt/mem_cache/kv_cache_configurator.py": "f914fd97aa9d38d0",
    "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py": "c2dae2e982eaafa5",
    "sglang/srt/models/qwen3_5_text.py": "ae216a71c95b1bd0",
    "sglang/srt/observability/metrics_collector.py": "73c03b6309248522",
    "sglang/srt/server_args.py": "c3a031ef31546970",
    "sglang/srt/speculative/dflash_info_v2.py": "8445e2b980e9f215",
    "sglang/srt/speculative/dflash_utils.py": "3f914df6af14d49d",
    "sglang/srt/speculative/dflash_worker_v2.py": "06f735eb1a676f27",
    "sglang/srt/speculative/spec_info.py": "897fa703fda47247",
}
