"""The command line: its commands, its global options, and the exit code of every error."""

from __future__ import annotations

import errno
import os
import signal
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .commands import (
    bench,
    build,
    deploy,
    doctor,
    history,
    hosts,
    image,
    lock,
    logs,
    patch,
    plan,
    playbook,
    profile,
    prune,
    rollback,
    smoke,
    status,
    stop,
    version,
)
from .errors import DdtreeError, Interrupted
from .output.console import fail
from .settings import Settings


class _Root(TyperGroup):
    """Ends every command with one line and the exit code that `errors.py` gives it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except DdtreeError as error:
            fail(str(error))
            raise typer.Exit(error.exit_code) from error
        except OSError as error:
            # A full disk, a folder without rights. A reader that left (`| head`) is typer's.
            if error.errno == errno.EPIPE or (
                error.filename is None and error.errno != errno.ENOSPC
            ):
                raise
            fail(f"{error.filename or 'output'}: {error.strerror}")
            raise typer.Exit(DdtreeError.exit_code) from error
        except KeyboardInterrupt as interrupt:
            fail("interrupted")
            raise typer.Exit(Interrupted.exit_code) from interrupt


app = typer.Typer(
    cls=_Root,
    help="Run tree-verified speculative decoding (DDTree) with SGLang on your own GPU servers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `ddtree deploy lab`: this machine, the reference engine, no GPU needed.",
)


@app.callback()
def _global_options(
    ctx: typer.Context,
    profiles: Annotated[
        Path | None,
        typer.Option(
            help="Search this directory for profiles before ./profiles, your own and the bundled.",
            envvar="DDTREE_PROFILES",
            metavar="DIR",
        ),
    ] = None,
) -> None:
    ctx.obj = Settings(profiles=profiles)


app.command()(deploy.deploy)
app.command()(plan.plan)
app.command()(status.status)
app.command()(smoke.smoke)
app.command()(bench.bench)
app.command()(logs.logs)
app.command()(stop.stop)
app.command()(rollback.rollback)
app.command()(history.history)
app.command()(prune.prune)
app.command()(build.build)
app.command()(doctor.doctor)
app.add_typer(hosts.app, name="hosts")
app.add_typer(image.app, name="image")
app.add_typer(patch.app, name="patch")
app.add_typer(profile.app, name="profile")
app.add_typer(playbook.app, name="playbook")
app.add_typer(lock.app, name="lock")
app.command()(version.version)


def main() -> None:
    """The console script. An error that no command expected is a bug: it is kept for the report."""
    # A closed terminal and a polite kill clean up as Ctrl-C does.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        app()
    except Exception as error:  # noqa: BLE001 - the last line of defence against a raw traceback
        fail(f"a bug: {type(error).__name__}: {error}; {_keep_traceback(error)}")
        raise SystemExit(1) from None


def _keep_traceback(error: Exception) -> str:
    from platformdirs import user_state_path

    report = user_state_path("ddtree") / "crash.txt"
    try:
        report.parent.mkdir(parents=True, exist_ok=True)
        with open(report, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            traceback.print_exception(error, file=file)
    except OSError:
        traceback.print_exception(error)
        return "the traceback is above"
    return f"the traceback is in {report}"
