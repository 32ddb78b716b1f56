"""The sections of a service profile, and what every section of a profile has in common."""

from __future__ import annotations

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from . import forms

Conflict = tuple[str, str, str, str]
"""A key that does not go with another one: key, the other, what is wrong, how to mend it."""

# sglang/srt/server_args.py of 0.5.17, ATTENTION_BACKEND_CHOICES without the deprecated aliases.
AttentionBackend = Literal[
    "triton", "torch_native", "flex_attention", "dsa", "dsv4", "cutlass_mla", "fa3", "fa4",
    "flashinfer", "flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla", "trtllm_mha",
    "dual_chunk_flash_attn", "hpc_ops", "aiter", "wave", "intel_amx", "ascend", "intel_xpu",
]  # fmt: skip


def in_unit(unit: str) -> dict[str, Any]:
    return {"unit": unit}


def of_form(form: str) -> dict[str, Any]:
    return {"form": form}


class Section(BaseModel):
    """A mapping of a profile; unknown keys are refused and values are taken as written."""

    # Built when first used: `ddtree status` reads hosts alone.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )

    def conflicts(self) -> list[Conflict]:
        """The keys that are valid alone but not together."""
        return []

    @model_validator(mode="after")
    def _agrees(self) -> Section:
        if found := self.conflicts():
            raise PydanticCustomError("conflicts", "{text}", {"text": found[0][2], "all": found})
        return self


class Speculative(Section):
    """How the tree is built. Meaningful for DDTREE alone."""

    budget: int = Field(
        16,
        ge=1,
        description="Nodes verified per step besides the root.",
        json_schema_extra=in_unit("nodes"),
    )
    topk_cap: int = Field(
        8,
        ge=1,
        description="Candidates considered at each depth.",
        json_schema_extra=in_unit("candidates"),
    )
    chain_seed: int | None = Field(
        None,
        ge=0,
        description="Depth to which the drafter's argmax chain is always kept, capped at "
        "min(block size - 1, budget); absent, the engine's default.",
        json_schema_extra=in_unit("depth"),
    )
    mode: Literal["tree", "shadow-linear"] = Field(
        "tree",
        description="tree verifies the tree; shadow-linear verifies its spine and logs what the "
        "tree would have won.",
    )
    allow_hybrid_unsafe: bool = Field(
        False,
        description="Start on a hybrid target even where the engine cannot give each node its "
        "parent's recurrent state: wrong output, for experiments only.",
    )


class Engine(Section):
    """Options of the engine, by SGLang's names; absent, the engine decides."""

    context_length: int | None = Field(
        None,
        ge=1,
        description="Longest prompt and answer together; absent, the model's.",
        json_schema_extra=in_unit("tokens"),
    )
    max_running_requests: int | None = Field(
        None,
        ge=1,
        description="Requests decoded at the same time; more wait.",
        json_schema_extra=in_unit("requests"),
    )
    attention_backend: AttentionBackend | None = Field(
        None, description="Attention kernels; a tree needs triton."
    )
    mem_fraction_static: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of GPU memory for weights and caches.",
        json_schema_extra=in_unit("fraction"),
    )
    random_seed: int | None = Field(None, ge=0, description="Seed of the sampler.")
    page_size: int | None = Field(
        None,
        ge=1,
        description="Tokens per page of the KV cache.",
        json_schema_extra=in_unit("tokens"),
    )
    extra_args: tuple[str, ...] = Field(
        (), description="Further words of the engine's command line, given as they are."
    )

    @field_validator("extra_args")
    @classmethod
    def _not_owned(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            flag = word.partition("=")[0]
            if owner := forms.OWNED_FLAGS.get(flag):
                raise ValueError(f"{flag} is set by {owner}")
            if flag in ("--api-key", "--admin-api-key"):
                raise ValueError(f"{flag} would show the key in the host's process list")
            if not word.isprintable() or not word:
                raise ValueError("an empty word, or one with control characters")
        return words


class Container(Section):
    """How the runtime docker starts the engine; the runtime process does not read it."""

    image: str | None = Field(
        None,
        pattern=forms.IMAGE,
        description="Image to run; absent, the project's own.",
        json_schema_extra=of_form(forms.IMAGE_FORM),
    )
    command: tuple[str, ...] = Field(
        ("python3", "-m", "sglang.launch_server"),
        min_length=1,
        description="Words that start the engine in the image; its options follow.",
    )
    restart: Literal["no", "on-failure", "unless-stopped"] = Field(
        "unless-stopped",
        description="What Docker does when the engine ends by itself, once deploy has proven it.",
    )
    shm_size: str = Field(
        "16g",
        pattern=forms.SIZE,
        description="Size of /dev/shm, which the engine's processes talk through.",
        json_schema_extra=of_form(forms.SIZE_FORM),
    )
    memory: str | None = Field(
        None,
        pattern=forms.SIZE,
        description="The most of the host's memory that the container may take; absent, all of it.",
        json_schema_extra=of_form(forms.SIZE_FORM),
    )
    ulimits: dict[Literal["memlock", "nofile", "stack"], int] = Field(
        {"memlock": -1, "stack": 67108864},
        description="Limits of the container's processes; -1 is unlimited.",
    )
    user: str | None = Field(
        None,
        pattern=forms.CONTAINER_USER,
        description="User that the engine runs as; absent, the image's.",
        json_schema_extra=of_form(forms.CONTAINER_USER_FORM),
    )
    env: dict[str, str] = Field({}, description="Environment of the engine. Not for secrets.")
    mounts: tuple[str, ...] = Field(
        (),
        description="Further folders of the host that the container sees; those of the weights "
        "are added by themselves.",
        json_schema_extra=of_form(forms.MOUNT_FORM),
    )
    kernel_cache: str = Field(
        "/var/cache/ddtree",
        pattern=forms.FOLDER,
        description="Where the container keeps compiled kernels: a volume for each image, GPU "
        "architecture and user, for compiling them anew costs minutes.",
        json_schema_extra=of_form(forms.FOLDER_FORM),
    )

    @field_validator("mounts")
    @classmethod
    def _are_mounts(cls, mounts: tuple[str, ...]) -> tuple[str, ...]:
        if odd := [mount for mount in mounts if not re.fullmatch(forms.MOUNT, mount)]:
            raise ValueError(f"{odd[0]!r} is no mount")
        return mounts

    @field_validator("ulimits")
    @classmethod
    def _limits(cls, limits: dict[str, int]) -> dict[str, int]:
        if low := [name for name, limit in limits.items() if limit < -1]:
            raise ValueError(f"{low[0]} must be -1 (unlimited), 0 or more")
        return limits

    @field_validator("env")
    @classmethod
    def _names(cls, env: dict[str, str]) -> dict[str, str]:
        for name, value in env.items():
            if not re.fullmatch(forms.ENV_NAME, name):
                raise ValueError(f"{name!r} is no name of an environment variable")
            if "\x00" in value:
                raise ValueError(f"{name} holds a NUL character")
        return env
