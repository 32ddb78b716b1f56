"""What an operator may declare: a host, a model, a service.

Each field carries its description, unit and constraint; `ddtree profile show` and every refusal
are written from them. Nothing is coerced: `"16"`, `16.0` and `true` are not the number 16.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from . import forms

Conflict = tuple[str, str, str]
"""A key (dotted) that does not go with another one: key, what is wrong, how to mend it."""

# sglang/srt/server_args.py of 0.5.17, ATTENTION_BACKEND_CHOICES without the deprecated aliases.
AttentionBackend = Literal[
    "triton", "torch_native", "flex_attention", "dsa", "dsv4", "cutlass_mla", "fa3", "fa4",
    "flashinfer", "flashmla", "trtllm_mla", "cutedsl_mla", "tokenspeed_mla", "trtllm_mha",
    "dual_chunk_flash_attn", "hpc_ops", "aiter", "wave", "intel_amx", "ascend", "intel_xpu",
]  # fmt: skip


def _unit(unit: str) -> dict[str, Any]:
    return {"unit": unit}


def _form(form: str) -> dict[str, Any]:
    return {"form": form}


class Section(BaseModel):
    """A mapping of a profile; unknown keys are refused and values are taken as written."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def conflicts(self) -> list[Conflict]:
        """The keys that are valid alone but not together."""
        return []

    @model_validator(mode="after")
    def _agrees(self) -> Section:
        if found := self.conflicts():
            raise PydanticCustomError("conflicts", "{text}", {"text": found[0][1], "all": found})
        return self


class HostProfile(Section):
    """A machine that serves: where it is, how services run on it, what it runs by default."""

    description: str = Field(description="One line for people.", min_length=1)
    template: bool = Field(
        False, description="Only a pattern for `ddtree hosts add`; no command touches it."
    )
    runtime: Literal["process", "docker"] = Field(
        description="process: on this machine, the lab engine only; docker: containers."
    )
    address: str | None = Field(
        None,
        pattern=forms.ADDRESS,
        description="Where SSH finds the host; absent for the runtime process (this machine).",
        json_schema_extra=_form(forms.ADDRESS_FORM),
    )
    user: str | None = Field(
        None,
        pattern=forms.USER,
        description="Login name; absent, your SSH configuration decides.",
        json_schema_extra=_form(forms.USER_FORM),
    )
    port: int = Field(22, ge=1, le=65535, description="TCP port of the SSH server.")
    gpus: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Places of the runtime process, numbered like GPUs; a docker host is asked.",
        json_schema_extra=_unit("places"),
    )
    bind: str = Field(
        "127.0.0.1",
        description="Address that services listen on; 127.0.0.1 is reached through SSH alone.",
        json_schema_extra=_form("an IP address of the host, like 127.0.0.1 or 0.0.0.0"),
    )
    base_port: int = Field(
        30000,
        ge=1024,
        le=65535 - 64,
        description="TCP port of the service on GPU 0; GPU n gets base_port + n.",
    )
    model: str = Field(
        pattern=forms.NAME,
        description="Model profile that services serve unless they name another.",
        json_schema_extra=_form(forms.NAME_FORM),
    )
    service: str = Field(
        "ddtree",
        pattern=forms.NAME,
        description="Service profile that `ddtree deploy HOST` takes without --service.",
        json_schema_extra=_form(forms.NAME_FORM),
    )
    ready_timeout_s: float = Field(
        900.0,
        gt=0,
        le=86400,
        description="How long a service may load before deploy calls it failed.",
        json_schema_extra=_unit("seconds"),
    )
    temporary_services: bool = Field(
        False,
        description="smoke and bench may start a service on a free GPU for a comparison and stop "
        "it afterwards.",
    )

    @field_validator("bind", "address")
    @classmethod
    def _is_ip(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None and (info.field_name == "bind" or ":" in text):
            try:
                ipaddress.ip_address(text)
            except ValueError:
                raise ValueError("not an IP address") from None
            if "%" in text:
                raise ValueError("an IPv6 zone is not supported")
        return text

    def conflicts(self) -> list[Conflict]:
        found: list[Conflict] = []
        if self.runtime == "process":
            found += [
                (key, f"{key} has no meaning for the runtime process", "it is this machine: remove")
                for key in ("address", "user", "port")
                if key in self.model_fields_set
            ]
            if self.template:
                found.append(
                    ("template", "the runtime process needs no template", "remove this line")
                )
            if self.gpus is None:
                found.append(
                    ("gpus", "'gpus' is missing", "the runtime process needs a number of places")
                )
        else:
            if self.gpus is not None:
                found.append(
                    ("gpus", "gpus is asked from nvidia-smi on a docker host", "remove this line")
                )
            if self.address is None and not self.template:
                found.append(
                    (
                        "address",
                        "'address' is missing",
                        f"the runtime docker needs {forms.ADDRESS_FORM}",
                    )
                )
        return found


class ModelProfile(Section):
    """A pair of models: the target that is served, and the drafter that proposes for it."""

    description: str = Field(description="One line for people.", min_length=1)
    extends: str | None = Field(
        None,
        pattern=forms.NAME,
        description="Another model profile whose values hold where this one is silent.",
        json_schema_extra=_form(forms.NAME_FORM),
    )
    target: str = Field(
        pattern=forms.WEIGHTS,
        description="Weights of the target.",
        json_schema_extra=_form(forms.WEIGHTS_FORM),
    )
    target_revision: str | None = Field(
        None,
        pattern=forms.REVISION,
        description="Commit, tag or branch of the target's Hugging Face repository.",
        json_schema_extra=_form(forms.REVISION_FORM),
    )
    drafter: str | None = Field(
        None,
        pattern=forms.WEIGHTS,
        description="Weights of the DFlash drafter; without one only algorithm none works.",
        json_schema_extra=_form(forms.WEIGHTS_FORM),
    )
    drafter_revision: str | None = Field(
        None,
        pattern=forms.REVISION,
        description="Commit, tag or branch of the drafter's Hugging Face repository.",
        json_schema_extra=_form(forms.REVISION_FORM),
    )
    served_name: str = Field(
        pattern=forms.SERVED_NAME,
        description="The id that /v1/models answers and that requests name.",
        json_schema_extra=_form(forms.SERVED_NAME_FORM),
    )
    context_length: int = Field(
        ge=1,
        description="Longest prompt and answer together that the target was made for.",
        json_schema_extra=_unit("tokens"),
    )
    block_size: int | None = Field(
        None,
        ge=2,
        le=1024,
        description="Positions the drafter handles at once: the last token and the drafted ones.",
        json_schema_extra=_unit("tokens"),
    )
    hybrid: bool = Field(
        description="Whether the target has recurrent layers (gated DeltaNet) besides attention."
    )

    def conflicts(self) -> list[Conflict]:
        found: list[Conflict] = []
        for key, weights in (("target", self.target), ("drafter", self.drafter)):
            revision = f"{key}_revision"
            if getattr(self, revision) is not None and (
                weights is None or weights.startswith(("/", "lab:"))
            ):
                found.append(
                    (revision, f"{revision} goes with a Hugging Face id only", "remove this line")
                )
        if self.drafter is not None and self.block_size is None:
            found.append(
                ("block_size", "'block_size' is missing", "the drafter's config.json has it")
            )
        if self.drafter is None and self.block_size is not None:
            found.append(("block_size", "block_size has no meaning without a drafter", "remove it"))
        return found


class Speculative(Section):
    """How the tree is built. Meaningful for DDTREE alone."""

    budget: int = Field(
        16,
        ge=1,
        description="Nodes verified per step besides the root.",
        json_schema_extra=_unit("nodes"),
    )
    topk_cap: int = Field(
        8,
        ge=1,
        description="Candidates considered at each depth.",
        json_schema_extra=_unit("candidates"),
    )
    chain_seed: int | None = Field(
        None,
        ge=0,
        description="Depth to which the drafter's argmax chain is always kept, capped at "
        "min(block size - 1, budget); absent, the engine's default.",
        json_schema_extra=_unit("depth"),
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
        json_schema_extra=_unit("tokens"),
    )
    max_running_requests: int | None = Field(
        None,
        ge=1,
        description="Requests decoded at the same time; more wait.",
        json_schema_extra=_unit("requests"),
    )
    attention_backend: AttentionBackend | None = Field(
        None, description="Attention kernels; a tree needs triton."
    )
    mem_fraction_static: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of GPU memory for weights and caches.",
        json_schema_extra=_unit("fraction"),
    )
    random_seed: int | None = Field(None, ge=0, description="Seed of the sampler.")
    page_size: int | None = Field(
        None,
        ge=1,
        description="Tokens per page of the KV cache.",
        json_schema_extra=_unit("tokens"),
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
        description="Image to run; absent, the one that `ddtree build` makes.",
        json_schema_extra=_form(forms.IMAGE_FORM),
    )
    restart: Literal["no", "on-failure", "unless-stopped"] = Field(
        "unless-stopped", description="What Docker does when the engine ends by itself."
    )
    shm_size: str = Field(
        "16g",
        pattern=forms.SIZE,
        description="Size of /dev/shm, which the engine's processes talk through.",
        json_schema_extra=_form(forms.SIZE_FORM),
    )
    ulimits: dict[Literal["memlock", "nofile", "stack"], int] = Field(
        {"memlock": -1, "stack": 67108864},
        description="Limits of the container's processes; -1 is unlimited.",
    )
    user: str | None = Field(
        None,
        pattern=forms.CONTAINER_USER,
        description="User that the engine runs as; absent, the image's.",
        json_schema_extra=_form(forms.CONTAINER_USER_FORM),
    )
    env: dict[str, str] = Field({}, description="Environment of the engine. Not for secrets.")

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


class ServiceProfile(Section):
    """What runs on one GPU: the decoding algorithm, the engine's options, the container."""

    description: str = Field(description="One line for people.", min_length=1)
    extends: str | None = Field(
        None,
        pattern=forms.NAME,
        description="Another service profile whose values hold where this one is silent.",
        json_schema_extra=_form(forms.NAME_FORM),
    )
    algorithm: Literal["none", "DFLASH", "DDTREE"] = Field(
        description="none: plain decoding; DFLASH: a linear draft; DDTREE: a tree of drafts."
    )
    model: str | None = Field(
        None,
        pattern=forms.NAME,
        description="Model profile to serve; absent, the host's.",
        json_schema_extra=_form(forms.NAME_FORM),
    )
    speculative: Speculative = Field(
        Speculative(), description="How the tree is built; for DDTREE alone."
    )
    engine: Engine = Field(Engine(), description="Options of the engine.")
    requires: tuple[Literal["patch-set"], ...] = Field(
        (), description="What the engine must have before this service may start."
    )
    container: Container = Field(Container(), description="How the runtime docker starts it.")

    def conflicts(self) -> list[Conflict]:
        if self.algorithm != "DDTREE" and "speculative" in self.model_fields_set:
            return [
                (
                    "speculative",
                    f"speculative is for the algorithm DDTREE; this service's is {self.algorithm}",
                    "remove the section, or write `speculative:` with nothing in it where it is "
                    "inherited",
                )
            ]
        return []


Profile = HostProfile | ModelProfile | ServiceProfile
Kind = Literal["hosts", "models", "services"]
SCHEMAS: dict[Kind, type[HostProfile] | type[ModelProfile] | type[ServiceProfile]] = {
    "hosts": HostProfile,
    "models": ModelProfile,
    "services": ServiceProfile,
}
