"""The set, and what other hands changed, as diffs that tools can read."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.errors import PatchMismatch
from ddtree_ops_cli.patchset.apply import apply
from ddtree_ops_cli.patchset.difference import FileDiff, difference
from ddtree_ops_cli.patchset.hunks import applied, parse
from ddtree_ops_cli.patchset.manifest import PatchSet
from ddtree_ops_cli.patchset.verify import survey
from tests.patchset.sample import (
    ADDED,
    ARGS,
    DIST_INFO,
    MODULES,
    PATCHED,
    VERSION,
    WORKER,
    Sample,
)


def found(sample: Sample) -> dict[str, FileDiff]:
    return {file.path: file for file in difference(survey(sample.tree, sample.patches))}


def test_the_diff_of_a_set_makes_the_patched_files(sample: Sample) -> None:
    after = PatchSet.load(VERSION, sample.patches).contents(sample.read)
    diffs = found(sample)
    assert set(diffs) == {*PATCHED, *ADDED}
    for path in PATCHED:
        diff = diffs[path].diff
        assert diff is not None
        [change] = parse(diff, where=path).values()
        assert applied(change, sample.read(path), where=path) == after[path]
    for path in ADDED:
        assert diffs[path].kind == "added"
        text = diffs[path].diff
        assert text is not None
        lines = [line[1:] for line in text.splitlines(keepends=True)[5:] if line[:1] == b"+"]
        assert b"".join(lines) == after[path]
    assert diffs[f"{MODULES}/__init__.py"].diff == (
        b"diff --git a/%b b/%b\nnew file mode 100644\n" % (2 * (f"{MODULES}/__init__.py".encode(),))
    )


def test_the_diff_is_the_same_before_and_after_apply(sample: Sample) -> None:
    before = found(sample)
    apply(sample.tree, sample.patches)
    assert found(sample) == before


def test_edits_of_a_patched_tree_are_shown_alone(sample: Sample) -> None:
    apply(sample.tree, sample.patches)
    sample.write(ARGS, sample.read(ARGS).replace(b"budget = 16", b"budget = 64"))
    (sample.tree / MODULES / "tree.py").unlink()
    sample.add(f"{MODULES}/own.py", b"mine\n")
    diffs = found(sample)
    assert {path: file.kind for path, file in diffs.items()} == {
        ARGS: "edited",
        f"{MODULES}/tree.py": "missing",
        f"{MODULES}/own.py": "unexpected",
    }
    edit, gone, own = (
        diffs[path].diff or b"" for path in (ARGS, f"{MODULES}/tree.py", f"{MODULES}/own.py")
    )
    assert b"-    budget = 16\n+    budget = 64\n" in edit
    assert b"\n--- a/%b\n+++ /dev/null\n" % f"{MODULES}/tree.py".encode() in gone
    assert own.endswith(b"+mine\n")


def test_an_edit_whose_original_is_nowhere_is_named_without_a_diff(sample: Sample) -> None:
    sample.write(WORKER, b"# mine\n")
    assert list(found(sample).values()) == [FileDiff(WORKER, "edited", None)]


def test_a_version_without_a_set_has_no_diff(sample: Sample) -> None:
    sample.write(f"{DIST_INFO}/METADATA", b"Version: 0.5.18\n")
    with pytest.raises(PatchMismatch, match="has no patch set; known"):
        found(sample)
