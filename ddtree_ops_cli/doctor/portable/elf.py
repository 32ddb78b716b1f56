"""What the doctor needs to know of a shared library, read from its ELF file.

A reader of our own, because it runs where nothing may be installed: pyelftools cannot be carried
there. It reads 64-bit little-endian files (x86_64 and aarch64) and the sections that a linker
writes for the loader: dynamic, dynsym, gnu.version_r and gnu.version_d.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MACHINES = {62: "x86_64", 183: "aarch64"}
_NEEDED, _SONAME, _RPATH, _RUNPATH = 1, 14, 15, 29


class Section(NamedTuple):
    name: str
    offset: int
    size: int
    link: int
    info: int


class Elf(NamedTuple):
    """A shared library as its loader sees it."""

    machine: str
    needed: tuple[str, ...]
    """DT_NEEDED: the libraries it asks for, by soname."""
    runpath: str
    undefined: frozenset[str]
    """Symbols that another library has to bring; weak ones may stay absent and are left out."""
    defined: frozenset[str]
    requires: dict[str, tuple[str, ...]]
    """Version names by library: {"libc.so.6": ("GLIBC_2.34", ...)}."""
    provides: tuple[str, ...]
    """Version names that it defines, like GLIBCXX_3.4.33."""
    sections: dict[str, Section]


class NotElf(Exception):
    """The file is not a 64-bit little-endian ELF file, or is cut off."""


def read(path: Path) -> Elf:
    """Raises NotElf and OSError."""
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(data)
        except (struct.error, IndexError, ValueError) as error:
            raise NotElf(f"{path}: {error}") from error


def _read(data: mmap.mmap) -> Elf:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    (machine,) = struct.unpack_from("<H", data, 18)
    sections = _sections(data)
    by_name = {section.name: section for section in sections}
    needed: list[str] = []
    runpath = ""
    if ".dynamic" in by_name:
        dynamic = by_name[".dynamic"]
        names = sections[dynamic.link]
        for tag, value in struct.iter_unpack("<qQ", _content(data, dynamic)):
            if tag == _NEEDED:
                needed.append(_text(data, names, value))
            elif tag in (_RPATH, _RUNPATH):
                runpath = _text(data, names, value)
    undefined, defined = _symbols(data, sections, by_name.get(".dynsym"))
    return Elf(
        machine=_MACHINES.get(machine, f"machine {machine}"),
        needed=tuple(needed),
        runpath=runpath,
        undefined=undefined,
        defined=defined,
        requires=_requires(data, sections, by_name.get(".gnu.version_r")),
        provides=_provides(data, sections, by_name.get(".gnu.version_d")),
        sections=by_name,
    )


def _sections(data: mmap.mmap) -> list[Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    if table == 0 or table + size * count > len(data):
        raise ValueError("its section table is missing or cut off")
    raw = [struct.unpack_from("<IIQQQQII", data, table + size * i) for i in range(count)]
    names = Section("", raw[names_at][4], raw[names_at][5], 0, 0)
    return [Section(_text(data, names, r[0]), r[4], r[5], r[6], r[7]) for r in raw]


def _symbols(
    data: mmap.mmap, sections: list[Section], table: Section | None
) -> tuple[frozenset[str], frozenset[str]]:
    if table is None:
        return frozenset(), frozenset()
    strings = _content(data, sections[table.link])
    undefined, defined = set(), set()
    for name, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", _content(data, table)):
        if name == 0:
            continue
        text = strings[name : strings.index(b"\0", name)].decode(errors="replace")
        weak = info >> 4 == 2
        if section != 0:
            defined.add(text)
        elif not weak:
            undefined.add(text)
    return frozenset(undefined), frozenset(defined)


def _requires(
    data: mmap.mmap, sections: list[Section], table: Section | None
) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    if table is None:
        return found
    strings = sections[table.link]
    for at in _chain(data, table, "<HHIII", 4):
        _, count, file, aux, _ = struct.unpack_from("<HHIII", data, at)
        names, place = [], at + aux
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", data, place)
            names.append(_text(data, strings, name))
            place += step
        found[_text(data, strings, file)] = tuple(names)
    return found


def _provides(data: mmap.mmap, sections: list[Section], table: Section | None) -> tuple[str, ...]:
    if table is None:
        return ()
    strings = sections[table.link]
    found = []
    for at in _chain(data, table, "<HHHHIII", 6):
        aux = struct.unpack_from("<HHHHIII", data, at)[5]
        (name,) = struct.unpack_from("<I", data, at + aux)
        found.append(_text(data, strings, name))
    return tuple(found)


def _chain(data: mmap.mmap, table: Section, form: str, step_at: int) -> Iterator[int]:
    """The places of linked records; `info` is how many there are."""
    at = table.offset
    for _ in range(table.info):
        yield at
        at += struct.unpack_from(form, data, at)[step_at]


def _content(data: mmap.mmap, section: Section) -> bytes:
    if section.offset + section.size > len(data):
        raise ValueError(f"{section.name} is cut off")
    return data[section.offset : section.offset + section.size]


def _text(data: mmap.mmap, strings: Section, at: int) -> str:
    begin = strings.offset + at
    return data[begin : data.find(b"\0", begin)].decode(errors="replace")
