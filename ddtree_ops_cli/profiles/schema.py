"""What an operator may declare: a host, a model, a service.

Each field carries its description, unit and constraint; `ddtree profile show` and every refusal
are written from them. Nothing is coerced: `"16"`, `16.0` and `true` are not the number 16.
"""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from . import forms
from .sections import Conflict, Container, Engine, Section, Speculative, in_unit, of_form

Line = Annotated[str, Field(pattern=forms.LINE, json_schema_extra=of_form(forms.LINE_FORM))]
_NAME = Field(pattern=forms.NAME, json_schema_extra=of_form(forms.NAME_FORM))
Name = Annotated[str, _NAME]
NameOrNone = Annotated[str | None, _NAME]
_WEIGHTS = Field(pattern=forms.WEIGHTS, json_schema_extra=of_form(forms.WEIGHTS_FORM))
Weights = Annotated[str, _WEIGHTS]
WeightsOrNone = Annotated[str | None, _WEIGHTS]
RevisionOrNone = Annotated[
    str | None, Field(pattern=forms.REVISION, json_schema_extra=of_form(forms.REVISION_FORM))
]


class HostProfile(Section):
    """A machine that serves: where it is, how services run on it, what it runs by default."""

    description: Line = Field(description="What this is, for people.")
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
        json_schema_extra=of_form(forms.ADDRESS_FORM),
    )
    user: str | None = Field(
        None,
        pattern=forms.USER,
        description="Login name; absent, your SSH configuration decides.",
        json_schema_extra=of_form(forms.USER_FORM),
    )
    port: int | None = Field(
        None,
        ge=1,
        le=65535,
        description="TCP port of the SSH server; absent, your SSH configuration decides.",
    )
    gpus: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Places of the runtime process, numbered like GPUs; a docker host is asked.",
        json_schema_extra=in_unit("places"),
    )
    gpu_access: Literal["auto", "gpus", "cdi"] = Field(
        "auto",
        description="How a container gets its GPU: a CDI device, or --gpus; auto takes CDI where "
        "a file of the host describes the GPU.",
    )
    bind: str = Field(
        "127.0.0.1",
        description="Address that services listen on; 127.0.0.1 is reached through SSH alone.",
        json_schema_extra=of_form("an IP address of the host, like 127.0.0.1 or 0.0.0.0"),
    )
    base_port: int = Field(
        30000,
        ge=1024,
        le=65535 - 64,
        description="TCP port of the service on GPU 0; GPU n gets base_port + n.",
    )
    model: Name = Field(description="Model profile that services serve unless they name another.")
    service: Name = Field(
        "ddtree", description="Service profile that `ddtree deploy HOST` takes without --service."
    )
    ready_timeout_s: float = Field(
        900.0,
        gt=0,
        le=86400,
        description="How long a service may load before deploy calls it failed.",
        json_schema_extra=in_unit("seconds"),
    )
    temporary_services: bool = Field(
        False,
        description="smoke and bench may start a service on a free GPU for a comparison and stop "
        "it afterwards.",
    )
    groups: tuple[Annotated[str, StringConstraints(pattern=forms.NAME)], ...] = Field(
        (), description="Groups that this host is in; `ddtree deploy @GROUP` means all of them."
    )
    state_directory: str = Field(
        "~/.local/state/ddtree",
        pattern=forms.STATE_DIRECTORY,
        description="Folder on the host for the locks and the audit log.",
        json_schema_extra=of_form(forms.STATE_DIRECTORY_FORM),
    )

    @field_validator("bind", "address")
    @classmethod
    def _is_ip(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None and (info.field_name == "bind" or ":" in text):
            try:
                ipaddress.ip_address(text)
            except ValueError:
                what = "a port goes into `port`" if ":" in text else "not an IP address"
                raise ValueError(what) from None
            if "%" in text:
                raise ValueError("an IPv6 zone is not supported")
        return text

    def conflicts(self) -> list[Conflict]:
        if self.runtime == "docker":
            found = []
            if self.gpus is not None:
                found.append(("gpus", "a docker host is asked for its GPUs", "remove this line"))
            if self.address is None and not self.template:
                found.append(("address", "'address' is missing", f"expected {forms.ADDRESS_FORM}"))
        else:
            found = [
                (key, f"the runtime process is this machine and has no {key}", "remove this line")
                for key in ("address", "user", "port")
                if key in self.model_fields_set
            ]
            if self.template:
                found.append(("template", "only a docker host can be a template", "remove it"))
            if self.gpus is None:
                found.append(("gpus", "'gpus' is missing", "say how many services fit here"))
        return [(key, "runtime", what, mend) for key, what, mend in found]


class ModelProfile(Section):
    """A pair of models: the target that is served, and the drafter that proposes for it."""

    description: Line = Field(description="What this is, for people.")
    extends: NameOrNone = Field(
        None, description="Another model profile whose values hold where this one is silent."
    )
    target: Weights = Field(description="Weights of the target.")
    target_revision: RevisionOrNone = Field(
        None, description="Commit, tag or branch of the target's Hugging Face repository."
    )
    drafter: WeightsOrNone = Field(
        None, description="Weights of the DFlash drafter; without one only algorithm none works."
    )
    drafter_revision: RevisionOrNone = Field(
        None, description="Commit, tag or branch of the drafter's Hugging Face repository."
    )
    served_name: str = Field(
        pattern=forms.SERVED_NAME,
        description="The id that /v1/models answers and that requests name.",
        json_schema_extra=of_form(forms.SERVED_NAME_FORM),
    )
    context_length: int = Field(
        ge=1,
        description="Longest prompt and answer together that the target was made for.",
        json_schema_extra=in_unit("tokens"),
    )
    block_size: int | None = Field(
        None,
        ge=2,
        le=1024,
        description="Positions the drafter handles at once: the last token and the drafted ones.",
        json_schema_extra=in_unit("tokens"),
    )
    mem_fraction_static: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of GPU memory for weights and caches, unless a service says its own "
        "(engine.mem_fraction_static); absent, the engine's default.",
        json_schema_extra=in_unit("fraction"),
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
                    (
                        revision,
                        key,
                        f"{revision} goes with a Hugging Face id only",
                        "remove this line",
                    )
                )
        if self.drafter is not None and self.block_size is None:
            found.append(
                (
                    "block_size",
                    "drafter",
                    "'block_size' is missing",
                    "the drafter's config.json has it",
                )
            )
        if self.drafter is None and self.block_size is not None:
            what = "block_size has no meaning without a drafter"
            found.append(("block_size", "drafter", what, "remove this line"))
        return found


class ServiceProfile(Section):
    """What runs on one GPU: the decoding algorithm, the engine's options, the container."""

    description: Line = Field(description="What this is, for people.")
    extends: NameOrNone = Field(
        None, description="Another service profile whose values hold where this one is silent."
    )
    algorithm: Literal["none", "DFLASH", "DDTREE"] = Field(
        description="none: plain decoding; DFLASH: a linear draft; DDTREE: a tree of drafts."
    )
    model: NameOrNone = Field(None, description="Model profile to serve; absent, the host's.")
    speculative: Speculative = Field(
        default_factory=Speculative, description="How the tree is built; for DDTREE alone."
    )
    engine: Engine = Field(default_factory=Engine, description="Options of the engine.")
    requires: tuple[Literal["patch-set"], ...] = Field(
        (), description="What the engine must have before this service may start."
    )
    container: Container = Field(
        default_factory=Container, description="How the runtime docker starts it."
    )

    def conflicts(self) -> list[Conflict]:
        if self.algorithm != "DDTREE" and "speculative" in self.model_fields_set:
            return [
                (
                    "speculative",
                    "algorithm",
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
