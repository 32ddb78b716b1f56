"""What the lab server says about itself: its model, its arguments, its figures."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import protocol
from .answer import Snapshot
from .asks import Ask, Limits
from .scheduler import Engine, Job, Scheduler

if TYPE_CHECKING:
    from .arguments import Arguments
    from .tokenizer import Tokenizer

SAMPLING_DEFAULTS = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")

Sample = tuple[str, str, Mapping[str, str], float]


class Service:
    """The loaded model behind the routes; `ready` turns true when `take` was called."""

    engine: Engine
    tokenizer: Tokenizer
    limits: Limits

    def __init__(self, arguments: Arguments, scheduler: Scheduler) -> None:
        self.arguments = arguments
        self.scheduler = scheduler
        self._began = time.time()
        self._startup = 0.0
        self._loaded = False
        self._seeds = random.Random(arguments.random_seed)

    @property
    def ready(self) -> bool:
        return self._loaded and self.scheduler.alive

    def take(self, engine: Engine, tokenizer: Tokenizer) -> None:
        arguments = self.arguments
        generation = read_json(arguments.model_path / "generation_config.json")
        eos = tokenizer.eos_token_id
        self.engine = engine
        self.tokenizer = tokenizer
        self.limits = Limits(
            algorithm=arguments.speculation.algorithm,
            vocabulary=engine.vocab_size,
            context_length=engine.context_length,
            defaults={
                key: generation[key]
                for key in SAMPLING_DEFAULTS
                if isinstance(generation.get(key), int | float)
            },
            always_stop=frozenset() if eos is None else frozenset({eos}),
            draw_seed=lambda: self._seeds.getrandbits(31),
        )
        self._startup = time.time() - self._began
        self._loaded = True

    @property
    def draft_tokens(self) -> int:
        """SGLang's speculative_num_draft_tokens: rows that a step verifies; 0 if plain."""
        speculation = self.arguments.speculation
        if speculation.algorithm == "none":
            return 0
        return speculation.budget + 1 if speculation.verifies_tree else self.engine.block_size

    def probe(self, deliver: Callable[[Snapshot], None]) -> Job:
        """A health probe in the queue: one token after token 0."""
        from .decode import Sampling

        ask = Ask(
            prompt=(0,),
            sampling=Sampling(max_new_tokens=1),
            stop=(),
            trims_stop=True,
            skips_special_tokens=True,
        )
        job = Job(id=f"HEALTH_CHECK_{uuid.uuid4().hex}", ask=ask, deliver=deliver, probe=True)
        self.scheduler.submit(job)
        return job

    def meta_info(self, job: Job, now: Snapshot) -> dict[str, Any]:
        return protocol.meta_info(
            job,
            now,
            draft_tokens=self.draft_tokens,
            tree=self.arguments.speculation.algorithm == "DDTREE",
        )

    def model_card(self) -> dict[str, Any]:
        return protocol.model_card(
            self.arguments.served_model_name, self.engine.context_length, int(time.time())
        )

    def model_info(self) -> dict[str, Any]:
        path = str(self.arguments.model_path)
        config = read_json(self.arguments.model_path / "config.json")
        return {
            "model_path": path,
            "tokenizer_path": path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": protocol.WEIGHT_VERSION,
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": config.get("model_type"),
            "architectures": config.get("architectures"),
        }

    def server_info(self) -> dict[str, Any]:
        """Arguments by SGLang's names, then what SGLang adds to them."""
        arguments = self.arguments
        path = str(arguments.model_path)
        return {
            "model_path": path,
            "tokenizer_path": path,
            "served_model_name": arguments.served_model_name,
            "host": arguments.host,
            "port": arguments.port,
            "context_length": self.engine.context_length,
            "random_seed": arguments.random_seed,
            "log_level": arguments.log_level,
            "device": "cpu",
            "dtype": "float32",
            "tp_size": 1,
            "enable_metrics": True,
            # There is no prefix cache: every prompt is computed anew, and cached_tokens is 0.
            "disable_radix_cache": True,
            "max_running_requests": 1,
            **self._speculation(),
            "status": "ready",
            "max_total_num_tokens": self.engine.context_length,
            "max_req_input_len": self.engine.context_length - 1,
            "startup_time": {"load_weight": self._startup},
            "internal_states": [self._state()],
            "version": f"{version('ddtree-ops')}+lab",
            "kv_events": None,
        }

    def _speculation(self) -> dict[str, Any]:
        arguments = self.arguments
        algorithm = arguments.speculation.algorithm
        if algorithm == "none":
            absent = ("algorithm", "draft_model_path", "num_draft_tokens")
            return {f"speculative_{name}": None for name in absent}
        fields: dict[str, Any] = {
            "speculative_algorithm": algorithm,
            "speculative_draft_model_path": str(arguments.draft_model_path),
            "speculative_num_draft_tokens": self.draft_tokens,
            "speculative_dflash_block_size": self.engine.block_size,
        }
        if algorithm == "DDTREE":
            fields |= {
                "speculative_ddtree_budget": arguments.speculation.budget,
                "speculative_ddtree_topk_cap": arguments.speculation.topk_cap,
                "speculative_ddtree_chain_seed": arguments.speculation.seed_depth(
                    self.engine.block_size
                ),
                "speculative_ddtree_mode": arguments.speculation.mode,
                "speculative_ddtree_state": "exact",
            }
        return fields

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = {
            "last_gen_throughput": self.scheduler.last_throughput,
            "effective_max_running_requests_per_dp": 1,
        }
        since = self.scheduler.since_flush
        if since.verify_steps:
            state["avg_spec_accept_length"] = 1 + since.correct_drafts / since.verify_steps
        return state

    def samples(self) -> list[Sample]:
        """The metrics, by SGLang's names, with a series for streamed and one for whole answers."""
        totals = self.scheduler.totals
        labels = {"model_name": self.arguments.served_model_name, "engine_type": "unified"}
        by_streaming = {
            "sglang:num_requests_total": totals.requests,
            "sglang:prompt_tokens_total": totals.prompt_tokens,
            "sglang:generation_tokens_total": totals.generation_tokens,
        }
        samples: list[Sample] = [
            (name, "counter", {**labels, "is_streaming": str(streams).lower()}, count)
            for name, counts in by_streaming.items()
            for streams, count in counts.items()
        ]
        samples += [
            ("sglang:num_aborted_requests_total", "counter", labels, totals.aborted),
            ("sglang:num_running_reqs", "gauge", labels, self.scheduler.running),
            ("sglang:num_queue_reqs", "gauge", labels, self.scheduler.waiting),
            ("sglang:gen_throughput", "gauge", labels, self.scheduler.last_throughput),
        ]
        if self.arguments.speculation.algorithm != "none":
            since = self.scheduler.since_flush
            length = 1 + since.correct_drafts / since.verify_steps if since.verify_steps else 0.0
            samples += [
                ("sglang:spec_verify_calls_total", "counter", labels, totals.verify_steps),
                ("sglang:spec_accept_length", "gauge", labels, length),
            ]
        if self.arguments.speculation.algorithm == "DDTREE":
            samples.append(
                ("sglang:spec_off_spine_drafts_total", "counter", labels, totals.off_spine_drafts)
            )
        return samples


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object that may be missing."""
    if not file.is_file():
        return {}
    found = json.loads(file.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}
