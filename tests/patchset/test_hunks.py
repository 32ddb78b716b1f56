"""Diffs are applied exactly, or refused with the line that does not fit."""

from __future__ import annotations

import pytest

from ddtree_ops_cli.errors import PatchMismatch
from ddtree_ops_cli.patchset.hunks import applied, parse

HEAD = b"--- a/sglang/x.py\n+++ b/sglang/x.py\n"


def patched(diff: bytes, content: bytes) -> bytes:
    [change] = parse(diff, where="p.patch").values()
    return applied(change, content, where="p.patch")


def test_hunks_are_placed_by_their_line_numbers() -> None:
    content = b"".join(b"same\n" for _ in range(9))
    diff = HEAD + b"@@ -2 +2 @@\n-same\n+two\n@@ -8,2 +8,3 @@\n same\n+new\n same\n"
    assert patched(diff, content).split() == [
        *[b"same", b"two"],
        *[b"same"] * 6,
        *[b"new", b"same"],
    ]


@pytest.mark.parametrize(
    ("before", "hunk", "after"),
    [
        (b"", b"@@ -0,0 +1 @@\n+a\n", b"a\n"),
        (b"a\nb\n", b"@@ -1,0 +2 @@\n+x\n", b"a\nx\nb\n"),
        (b"a\n", b"@@ -1 +0,0 @@\n-a\n", b""),
        (b"a", b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n", b"a\n"),
        (b"a\n", b"@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n", b"a"),
        (b"a\r\nb\r\n", b"@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n", b"a\r\nc\r\n"),
        (
            b"a\x0cb\x85\xff\n",
            b"@@ -1 +1,2 @@\n a\x0cb\x85\xff\n+\xfe\n",
            b"a\x0cb\x85\xff\n\xfe\n",
        ),
        # A mail's signature after the last hunk is no part of it.
        (b"a\n", b"@@ -1 +1 @@\n-a\n+b\n-- \n2.47.0\n\n", b"b\n"),
        # An editor that strips spaces leaves an empty line for an empty context line.
        (b"\na\n", b"@@ -1,2 +1,2 @@\n\n-a\n+b\n", b"\nb\n"),
    ],
)
def test_every_byte_is_kept(before: bytes, hunk: bytes, after: bytes) -> None:
    assert patched(HEAD + hunk, before) == after


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a\nB\nc\n", r"hunk 1 of sglang/x.py: line 2: expected 'b\\n', found 'B\\n'"),
        (b"new\na\nb\nc\n", r"line 1: expected 'a\\n', found 'new\\n'"),
        (b"a\nb \nc\n", r"line 2: expected 'b\\n', found 'b \\n'"),
        (b"a\nb\r\nc\n", r"line 2: expected 'b\\n', found 'b\\r\\n'"),
        (b"a\nb\nc", r"line 3: expected 'c\\n', found 'c'"),
        (b"a\nb\n", r"line 3: expected 'c\\n', the file ends"),
        (b"a\nx\nc\n", r"found 'x\\n'"),  # applied already
    ],
)
def test_no_fuzz_no_offset_no_other_line_ending(content: bytes, says: str) -> None:
    with pytest.raises(PatchMismatch, match=says):
        patched(HEAD + b"@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n", content)


def test_hunks_may_not_overlap() -> None:
    diff = HEAD + b"@@ -1,2 +1,2 @@\n a\n-b\n+x\n@@ -2 +2 @@\n-b\n+y\n"
    with pytest.raises(PatchMismatch, match=r"hunk 2 of sglang/x\.py: overlaps"):
        patched(diff, b"a\nb\n")


@pytest.mark.parametrize(
    ("diff", "says"),
    [
        (b"", "no file is changed"),
        (b"just words\n", "no file is changed"),
        (HEAD + b"@@ -1,5 +1 @@\n-a\n", "not a unified diff: Hunk is shorter"),
        (HEAD + b"@@ -1 +1 @@\nwhat\n", "not a unified diff"),
        (b"--- /dev/null\n+++ b/sglang/n.py\n@@ -0,0 +1 @@\n+a\n", "does more to b/sglang/n.py"),
        (b"--- a/sglang/n.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", "does more to a/sglang/n.py"),
        (b"--- sglang/n.py\n+++ sglang/n.py\n@@ -1 +1 @@\n-a\n+b\n", "name a file as a/PATH"),
        (b"--- a/sglang/n.py\n+++ b/sglang/m.py\n@@ -1 +1 @@\n-a\n+b\n", "name a file as a/PATH"),
        (
            b"diff --git a/s b/s\nold mode 100644\nnew mode 100755\n"
            b"--- a/s\n+++ b/s\n@@ -1 +1 @@\n-a\n+b\n",
            "changes the mode of s",
        ),
        (
            b"diff --git a/s b/r\nsimilarity index 100%\nrename from s\nrename to r\n",
            "does more to a/s",
        ),
        (b"Binary files a/s and b/s differ\n", "does more to a/s"),
        (HEAD + b"@@ -1 +1 @@\n-a\n+b\n" + HEAD + b"@@ -3 +3 @@\n-a\n+b\n", "x.py twice"),
    ],
)
def test_a_patch_may_only_change_the_lines_of_files(diff: bytes, says: str) -> None:
    with pytest.raises(PatchMismatch, match=says) as caught:
        parse(diff, where="p.patch")
    assert str(caught.value).startswith("p.patch: ")
