"""The ELF reader on real libraries; what they hold is known from how they were made."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddtree_ops_cli.doctor.portable.elf import NotElf, read
from ddtree_ops_cli.doctor.portable.libraries import TorchSymbols, cxx11, demangled, floors

ARTEFACTS = Path(__file__).parent / "artefacts"


def test_needed_libraries_and_symbols_are_those_that_it_was_linked_with() -> None:
    elf = read(ARTEFACTS / "needs-cuda12.so")
    assert elf.machine == "x86_64"
    assert elf.needed[:2] == ("libcudart.so.12", "libc10.so")
    assert elf.undefined == {"_ZN3c104warnEi"}
    assert "_Z1fv" in elf.defined


def test_weak_symbols_are_not_asked_of_anybody() -> None:
    assert not any("ITM" in name for name in read(ARTEFACTS / "with-sm120.so").undefined)


@pytest.mark.parametrize(
    ("name", "family", "version"),
    [("new-glibc.so", "GLIBC", "2.34"), ("new-libstdcxx.so", "GLIBCXX", "3.4.29")],
)
def test_the_newest_version_that_a_library_asks_for_is_its_floor(
    name: str, family: str, version: str
) -> None:
    assert floors(read(ARTEFACTS / name))[family] == version


@pytest.mark.parametrize(
    ("name", "abi"), [("new-abi.so", True), ("old-abi.so", False), ("needs-cuda13.so", None)]
)
def test_the_abi_of_std_string_is_told_from_the_names(name: str, abi: bool | None) -> None:
    assert cxx11(read(ARTEFACTS / name)) is abi


@pytest.mark.parametrize("size", [0, 3, 64, 4000])
def test_a_file_that_is_cut_off_or_no_elf_is_refused(tmp_path: Path, size: int) -> None:
    cut = tmp_path / "cut.so"
    cut.write_bytes((ARTEFACTS / "new-abi.so").read_bytes()[:size])
    with pytest.raises(NotElf):
        read(cut)


def test_names_are_demangled_and_others_stay() -> None:
    plain = demangled(["_ZN3c1010gone_sinceERKNS_6SymIntEi", "malloc"])
    assert plain == ["c10::gone_since(c10::SymInt const&, int)", "malloc"]


@pytest.mark.parametrize(
    "name",
    [
        "_ZN3c104warnEi",
        "_ZNK2at10TensorBase4sizeEl",
        # A member function for lvalues, as torch::Library::_def; sglang-kernel 0.4.5 needs it.
        "_ZNR5torch7Library4_defEON3c1014FunctionSchemaE",
        "_ZNO3c103ListEv",
        "_ZTVN3c105ErrorE",
    ],
)
def test_every_form_of_pytorchs_own_names_is_looked_for(name: str) -> None:
    torch = TorchSymbols(None)
    torch.names = {"_ZN3c106otherEv"}
    assert torch.without([name]) == [name]
    torch.names.add(name)
    assert torch.without([name]) == []


@pytest.mark.parametrize("name", ["malloc", "_ZNSt6vectorIN3c106SymIntEE4sizeEv", "_Z5atexiv"])
def test_names_of_others_are_not_asked_of_pytorch(name: str) -> None:
    torch = TorchSymbols(None)
    torch.names = {"_ZN3c106otherEv"}
    assert torch.without([name]) == []
