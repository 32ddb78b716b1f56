"""`ddtree patch status|check|apply|revert|diff`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .options import AsJson, DryRun

if TYPE_CHECKING:
    from ..patchset.apply import Outcome

app = typer.Typer(help="The patch set for SGLang: status, check, apply, revert, diff.")

_Target = Annotated[
    Path,
    typer.Argument(
        metavar="TARGET",
        help="A site-packages folder, an unpacked wheel or a virtual environment.",
        show_default=False,
    ),
]
_Patches = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="A folder of patch sets in place of the bundled one."),
]


@app.command()
def status(target: _Target, patches: _Patches = None, as_json: AsJson = False) -> None:
    """Show whether the set is applied.

    Exit code 8 unless it wholly is, or is not at all.
    """
    from ..errors import PatchMismatch
    from ..output import machine, tables
    from ..output.console import note
    from ..patchset.verify import survey

    here = survey(target, patches)
    version = here.installation.version if here.installation else None
    if as_json:
        machine.write(
            {
                "target": here.target,
                "site_packages": here.installation and here.installation.site,
                "sglang": version,
                "state": here.state,
                "clean": here.clean,
                "detail": here.detail,
                "applied_patch_set": here.applied_hash,
                "known_patch_set": here.patch_set and here.patch_set.set_hash,
                "files": here.findings,
            }
        )
    else:
        applied = here.applied_hash and here.applied_hash[:12]
        tables.show(("sglang", "state", "patch set"), [(version, here.state, applied)])
        note(here.detail)
    if not here.clean:
        raise typer.Exit(PatchMismatch.exit_code)


@app.command()
def check(target: _Target, patches: _Patches = None, as_json: AsJson = False) -> None:
    """Say whether `apply` would succeed, and change nothing."""
    from ..patchset.apply import apply as put

    _report(put(target, patches, dry_run=True), "would apply", "is applied", as_json, dry_run=True)


@app.command()
def apply(
    target: _Target, patches: _Patches = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Apply the set for the target's version of SGLang.

    All of it, or nothing.
    """
    from ..patchset.apply import apply as put

    verb = "would apply" if dry_run else "applied"
    outcome = put(target, patches, dry_run=dry_run)
    _report(outcome, verb, "is applied already: nothing to do", as_json, dry_run=dry_run)


@app.command()
def revert(
    target: _Target, patches: _Patches = None, dry_run: DryRun = False, as_json: AsJson = False
) -> None:
    """Restore SGLang to what it was before `apply`, byte for byte."""
    from ..patchset.apply import revert as back

    verb = "would revert" if dry_run else "reverted"
    outcome = back(target, patches, dry_run=dry_run)
    _report(outcome, verb, "is not applied: nothing to do", as_json, dry_run=dry_run)


@app.command()
def diff(target: _Target, patches: _Patches = None, as_json: AsJson = False) -> None:
    """Print what the set changes.

    For a tree that others edited: what they changed.
    """
    from ..errors import PatchMismatch
    from ..output import machine
    from ..output.console import warn
    from ..patchset.difference import difference
    from ..patchset.verify import survey

    here = survey(target, patches)
    found = difference(here)
    if as_json:
        files = [
            {"path": f.path, "kind": f.kind, "diff": f.diff and f.diff.decode("utf-8", "replace")}
            for f in found
        ]
        machine.write({"state": here.state, "files": files})
    else:
        for file in found:
            if file.diff is None:
                warn(f"{file.path} is {file.kind}, and its original is not at hand to compare")
            else:
                typer.echo(file.diff, nl=False)  # the very bytes: it can be piped into `patch`
    if here.foreign:
        raise typer.Exit(PatchMismatch.exit_code)


def _report(outcome: Outcome, verb: str, idle: str, as_json: bool, *, dry_run: bool) -> None:
    from ..output import machine
    from ..output.console import data, note

    if as_json:
        machine.write(
            {
                "site_packages": outcome.site,
                "sglang": outcome.version,
                "changed": outcome.changed and not dry_run,
                "would_change": outcome.changed,
                "recovered": outcome.recovered,
                "patch_set": outcome.set_hash,
                "files": outcome.files,
            }
        )
        return
    chosen = f"patch set {outcome.set_hash[:12]}" if outcome.set_hash else "the patch set"
    if outcome.recovered:
        note("an interrupted run was found" + (" and will be undone" if dry_run else " and undone"))
    if outcome.changed:
        for path in outcome.files:
            data().print(path, markup=False, soft_wrap=True)
        note(f"{verb} {chosen} in SGLang {outcome.version} at {outcome.site}")
    else:
        note(f"{chosen} {idle} (SGLang {outcome.version} at {outcome.site})")
