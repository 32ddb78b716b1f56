"""A set is what its manifest says, or it is not used; the tool writes what it says."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable

import pytest
import yaml

from ddtree_ops_cli.errors import PatchMismatch
from ddtree_ops_cli.patchset.manifest import (
    Manifest,
    PatchSet,
    known_versions,
    set_hash_of,
    sha256,
)
from tests.patchset.sample import (
    ADDED,
    ARGS,
    PATCHED,
    SPEC,
    VERSION,
    WORKER,
    Sample,
    refresh,
    write_patches,
)

FOLDER = f"sglang-{VERSION}"


def load(sample: Sample) -> PatchSet:
    return PatchSet.load(VERSION, sample.patches)


def test_the_set_gives_every_file_as_it_will_be(sample: Sample) -> None:
    contents = load(sample).contents(sample.read)
    assert sorted(contents) == sorted((*PATCHED, *ADDED))
    assert contents[ARGS] == (
        b"class ServerArgs:\n    algorithm = None\n    budget = 16\n    topk = 1\n"
        b"    topk_cap = 8\n\n\ndef parse():\n    pass\n"
    )
    assert contents[SPEC] == (
        b'# caf\xe9\r\nNAMES = ["DFLASH", "DDTREE"]\n\x0c\nLAST = 2\nfrom .ddtree import tree'
    )
    assert contents[WORKER] == b"def step():\n    width = 2\n    return width\n"


def test_the_hash_stands_for_the_patched_code(sample: Sample) -> None:
    first = load(sample).set_hash
    assert re.fullmatch("[0-9a-f]{64}", first)
    manifest = sample.patches / FOLDER / "manifest.yaml"
    manifest.write_text(manifest.read_text().replace("Adds a flag.", "Adds the budget."))
    assert load(sample).set_hash == first
    other = write_patches(sample.patches.parent / "other", modules={"tree.py": b"x = 2\n"})
    assert PatchSet.load(VERSION, other).set_hash != first


def test_an_unknown_version_names_the_known_ones(sample: Sample) -> None:
    assert known_versions(sample.patches) == [VERSION]
    with pytest.raises(PatchMismatch, match=r"no patch set for SGLang 0\.5\.18; known: 0\.5\.17$"):
        PatchSet.load("0.5.18", sample.patches)
    with pytest.raises(PatchMismatch, match="known: none"):
        PatchSet.load(VERSION, sample.tree)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (
            f"{FOLDER}/0001-flags.patch",
            r"0001-flags\.patch: is not as the manifest says; run tools",
        ),
        ("ddtree/tree.py", r"tree\.py: is not as the manifest says; run tools"),
        (f"{FOLDER}/0009-new.patch", r"0009-new\.patch: the manifest does not list it; run tools"),
        ("ddtree/kernels/new.py", r"new\.py: the manifest does not list it; run tools"),
    ],
)
def test_a_file_that_is_not_as_listed_is_refused(sample: Sample, path: str, says: str) -> None:
    with (sample.patches / path).open("ab") as file:
        file.write(b"# one line more\n")
    with pytest.raises(PatchMismatch, match=says):
        load(sample)


@pytest.mark.parametrize(
    ("pattern", "new", "says"),
    [
        ("^", "\t", "manifest.yaml: .*cannot start any token"),
        ("(?s).*", "[]", "the document: "),
        ("format: 1", "format: 2", "format: "),
        ("sglang: 0.5.17", "sglang: 0.5.18", "is for SGLang 0.5.18"),
        ("purpose: Adds a flag.", "prupose: x", "patches.0.purpose: Field required"),
        ("drop: until flags", "drop: if flags", "patches.0.drop: .*until"),
        ("sglang/srt/server_args.py", "../srt/server_args.py", "a path under sglang/"),
        ("sglang/srt/server_args.py", "sglang/../../x.py", "a path under sglang/"),
        ("target: sglang/srt", "target: /srt", "modules.target: .*a path under sglang/"),
        ("kernels/__init__.py", "../__init__.py", "modules.files"),
        ("set_hash: .", "set_hash: ", "set_hash: String should match"),
        ("set_hash: ....", "set_hash: 0000", "set_hash is not that of its files"),
        (
            "(0003(?s:.*?)before: )....",
            r"\g<1>0000",
            r"0003-cap\.patch: sglang/srt/server_args\.py is not as an earlier patch leaves it",
        ),
    ],
)
def test_a_broken_manifest_is_one_line(sample: Sample, pattern: str, new: str, says: str) -> None:
    manifest = sample.patches / FOLDER / "manifest.yaml"
    text, count = re.subn(pattern, new, manifest.read_text(), count=1)
    assert count == 1
    manifest.write_text(text)
    with pytest.raises(PatchMismatch, match=says) as caught:
        load(sample)
    assert "\n" not in str(caught.value)


def test_a_hash_that_the_patches_do_not_make_is_refused(sample: Sample) -> None:
    file = sample.patches / FOLDER / "manifest.yaml"
    document = yaml.safe_load(file.read_text())
    document["patches"][1]["files"][WORKER]["after"] = 64 * "0"
    manifest = Manifest.model_validate(document)
    document["set_hash"] = set_hash_of(VERSION, manifest.changes, manifest.additions)
    file.write_text(yaml.safe_dump(document))
    with pytest.raises(PatchMismatch, match=f"0002.*: {WORKER} does not get the manifest's hash"):
        load(sample).contents(sample.read)


def test_another_original_is_refused(sample: Sample) -> None:
    with pytest.raises(PatchMismatch, match=f"^{ARGS}: is not the file that 0001-flags.patch"):
        load(sample).contents(lambda path: sample.read(path) + b"\n")


def test_the_tool_keeps_the_prose_and_repeats_itself(sample: Sample) -> None:
    manifest = sample.patches / FOLDER / "manifest.yaml"
    text = manifest.read_text()
    assert text.startswith("# The patches of the tests.\nformat: 1\n")
    assert [entry["purpose"] for entry in yaml.safe_load(text)["patches"]] == [
        "Adds a flag.",
        "Names the algorithm.",
        "Adds another flag.",
    ]
    again = refresh(sample.tree, sample.patches)
    assert "up to date" in again.stdout
    assert manifest.read_text() == text


def test_the_tool_lists_the_patched_files_for_a_set_that_looks_at_them(sample: Sample) -> None:
    listing = sample.patches / "ddtree" / "patched_files.py"
    listing.write_text("")
    assert refresh(sample.tree, sample.patches, "--check").returncode == 1
    assert refresh(sample.tree, sample.patches).returncode == 0
    assert refresh(sample.tree, sample.patches, "--check").returncode == 0
    patched = load(sample).contents(sample.read)
    listed = runpy.run_path(str(listing))["PATCHED"]
    assert listed == {path: sha256(patched[path])[:16] for path in PATCHED}
    listing.write_text("PATCHED = {}\n")
    assert refresh(sample.tree, sample.patches, "--check").returncode == 1


def test_the_tool_tells_an_outdated_manifest(sample: Sample) -> None:
    (sample.patches / "ddtree" / "tree.py").write_bytes(b"x = 3\n")
    manifest = sample.patches / FOLDER / "manifest.yaml"
    before = manifest.read_text()
    check = refresh(sample.tree, sample.patches, "--check")
    assert (check.returncode, "outdated" in check.stderr) == (1, True)
    assert manifest.read_text() == before
    assert refresh(sample.tree, sample.patches).returncode == 0
    assert refresh(sample.tree, sample.patches, "--check").returncode == 0


def _unlisted(sample: Sample) -> None:
    (sample.patches / FOLDER / "0004-x.patch").write_bytes(b"")


def _gone(sample: Sample) -> None:
    (sample.patches / FOLDER / "0001-flags.patch").unlink()


def _edited(sample: Sample) -> None:
    sample.write(ARGS, b"nothing\n")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_unlisted, "0004-x.patch: the manifest does not list it; add an entry with file, purpose"),
        (_gone, "0001-flags.patch: cannot be read"),
        (_edited, "hunk 1 of sglang/srt/server_args.py: line 1: expected"),
    ],
)
def test_the_tool_refuses_what_does_not_fit(
    sample: Sample, spoil: Callable[[Sample], None], says: str
) -> None:
    spoil(sample)
    done = refresh(sample.tree, sample.patches)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr
