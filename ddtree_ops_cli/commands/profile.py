"""`ddtree profile list|show|check`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..settings import Settings
from .options import AsJson

app = typer.Typer(help="The profiles: list, show, check.")


@app.command("list")
def list_profiles(
    ctx: typer.Context,
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="hosts, models or services.  [default: all]"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all profiles on the search path.

    The first of a kind and name is the one in use.
    """
    from ..output import machine, tables
    from ..profiles.check import description
    from ..profiles.locate import KINDS, Library, kind_named
    from ..profiles.problems import shown

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    kinds = [kind_named(kind)] if kind else KINDS
    entries = [entry for each in kinds for entry in library.list(each)]
    described = [(entry, description(entry, library)) for entry in entries]
    if as_json:
        machine.write(
            [
                {
                    "kind": entry.kind,
                    "name": entry.name,
                    "file": entry.file,
                    "description": text,
                    "valid": text is not None,
                    "hidden_by": entry.hidden_by,
                }
                for entry, text in described
            ]
        )
        return
    rows = []
    for entry, text in described:
        text = "invalid: see `ddtree profile check`" if text is None else text
        text = f"hidden by {shown(entry.hidden_by)}" if entry.hidden_by else text
        rows.append((entry.kind, entry.name, shown(entry.file), text))
    tables.show(("kind", "name", "file", "description"), rows)


@app.command()
def show(
    ctx: typer.Context,
    words: Annotated[
        list[str], typer.Argument(metavar="[KIND] NAME", help="The kind may be left out.")
    ],
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", help="Say what each value means and may be, in place of its origin."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show every value of a profile, and the file and line that set it."""
    from ..errors import UsageError
    from ..output import machine, tables
    from ..profiles.locate import Library, kind_named
    from ..profiles.values import said, values

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    if len(words) > 2:
        raise UsageError("one profile at a time", mend="say [KIND] NAME")
    name = words[-1]
    kind = kind_named(words[0]) if len(words) == 2 else library.kind_of(name)
    loaded = library.load(kind, name)
    found = values(loaded)
    if as_json:
        machine.write({"kind": kind, "name": name, "file": loaded.file, "values": found})
        return
    if explain:
        rows = [(v.key, said(v.value), f"{v.meaning} ({v.constraint})") for v in found]
        tables.show(("key", "value", "meaning"), rows)
    else:
        tables.show(("key", "value", "from"), [(v.key, said(v.value), v.origin) for v in found])


@app.command()
def check(
    ctx: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE|DIR", help="What to check.  [default: the whole search path]"),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="hosts, models or services, where no folder tells it."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Validate profiles.

    A line for each problem; exit code 3 if there is one.
    """
    from ..errors import ProfileError
    from ..output import machine
    from ..output.console import data, note
    from ..profiles.check import check_library, check_paths
    from ..profiles.locate import Library, kind_named

    settings: Settings = ctx.obj
    library = Library.default(settings.profiles)
    if paths:
        checked = check_paths(paths, kind_named(kind) if kind else None, library)
    else:
        checked = check_library(library)
    problems = sorted({problem for each in checked for problem in each.problems})
    invalid = sum(bool(each.problems) for each in checked)
    if as_json:
        machine.write(
            {
                "checked": len(checked),
                "invalid": invalid,
                "problems": [
                    {
                        "file": problem.place.file,
                        "line": problem.place.line,
                        "column": problem.place.column,
                        "what": problem.what,
                        "mend": problem.mend or None,
                    }
                    for problem in problems
                ],
            }
        )
    else:
        for problem in problems:
            data().print(str(problem), markup=False, soft_wrap=True)
        note(f"{len(checked)} profiles checked, {invalid} invalid")
    if invalid:
        raise typer.Exit(ProfileError.exit_code)
