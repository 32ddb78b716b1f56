"""What is printed is what was said."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.output import tables
from ddtree_ops_cli.output.console import note
from ddtree_ops_cli.output.progress import step

IMAGE = "ddtree/sglang:x: step 2/34 [bold]"


def test_no_name_becomes_a_picture_or_a_style(capsys: pytest.CaptureFixture[str]) -> None:
    """`:x:` is a cross to Rich, and `[bold]` a style."""
    note(IMAGE)
    with step(IMAGE) as say:
        say(IMAGE)
    tables.show(("image",), [(IMAGE,)])
    said = capsys.readouterr()
    first, second = said.err.splitlines()
    assert first == IMAGE
    assert second.startswith(f"✓ {IMAGE}: {IMAGE} (")
    assert said.out.splitlines()[1].rstrip() == IMAGE
