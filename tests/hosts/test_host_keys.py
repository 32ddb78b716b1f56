"""known_hosts, judged."""

from __future__ import annotations

import stat
import subprocess
from pathlib import Path

import pytest

from ddtree_ops_cli.hosts.host_keys import HostKey, append, judge, known_kinds, parse, read

FILE = Path("/h/.ssh/known_hosts")
KEY = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(32))
OTHER = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes(range(32)))
RSA = HostKey("ssh-rsa", b"\0\0\0\x07ssh-rsa" + bytes(300))


def line(names: str, key: HostKey = KEY, marker: str = "") -> str:
    from base64 import b64encode

    return f"{marker} {names} {key.kind} {b64encode(key.blob).decode()} a comment\n".lstrip()


@pytest.mark.parametrize(
    ("names", "name", "state"),
    [
        ("box", "box", "known"),
        ("box", "BOX", "known"),
        ("a,box,10.0.0.1", "10.0.0.1", "known"),
        ("box", "box2", "unknown"),
        ("box", "[box]:2222", "unknown"),
        ("[box]:2222", "[box]:2222", "known"),
        ("[box]:2222", "[box]:2223", "unknown"),
        ("[box]:2222", "b:2222", "unknown"),
        ("*.example.com", "a.example.com", "known"),
        ("*.example.com,!b.example.com", "b.example.com", "unknown"),
        ("!b.example.com,*.example.com", "b.example.com", "unknown"),
        ("10.0.0.?", "10.0.0.7", "known"),
        ("|1|broken", "box", "unknown"),
        ("|1|!!|!!", "box", "unknown"),
        ("fe80::1", "fe80::1", "known"),
    ],
)
def test_a_name_is_matched_as_openssh_does(names: str, name: str, state: str) -> None:
    assert judge(parse(line(names), FILE), name, KEY).state == state


def test_a_later_line_with_the_right_key_is_enough() -> None:
    entries = parse(line("box", OTHER) + line("box"), FILE)
    assert judge(entries, "box", KEY).state == "known"


def test_a_contradiction_names_the_line_of_the_same_type() -> None:
    entries = parse("# first\n\n" + line("box", RSA) + line("box", OTHER), FILE)
    verdict = judge(entries, "box", KEY)
    assert verdict.state == "changed"
    assert verdict.entry is not None
    assert verdict.entry.place == f"{FILE}:4"


def test_a_key_of_a_type_that_is_not_listed_contradicts() -> None:
    assert judge(parse(line("box", RSA), FILE), "box", KEY).state == "changed"


@pytest.mark.parametrize("order", [0, 1])
def test_a_revoked_key_is_refused_wherever_it_is_listed(order: int) -> None:
    lines = [line("box"), line("*", marker="@revoked")]
    entries = parse("".join(lines if order else lines[::-1]), FILE)
    assert judge(entries, "box", KEY).state == "revoked"
    assert judge(entries, "box", OTHER).state == "changed"


def test_an_authority_is_no_key_of_the_host() -> None:
    entries = parse(line("*", marker="@cert-authority"), FILE)
    assert judge(entries, "box", KEY).state == "unknown"
    assert known_kinds(entries, "box") == []


def test_lines_that_are_none_are_skipped() -> None:
    text = "#c\n\n \nbox\nbox ssh-ed25519\nbox ssh-ed25519 %%%\n@odd\n" + line("box")
    assert [entry.line for entry in parse(text, FILE)] == [8]


def test_files_that_are_missing_know_nobody(tmp_path: Path) -> None:
    assert read([tmp_path / "none"]) == []


def test_appending_keeps_what_is_there_and_who_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / ".ssh/known_hosts"
    append(file, "box", [KEY], hashed=False)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_text(file.read_text().rstrip("\n"))
    file.chmod(0o644)
    before = file.read_bytes()
    append(file, "[box]:22222", [RSA, OTHER], hashed=True)
    assert file.read_bytes().startswith(before + b"\n|1|")
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    entries = read([file])
    assert [judge(entries, "[box]:22222", key).state for key in (RSA, OTHER)] == ["known"] * 2
    assert judge(entries, "box", KEY).state == "known"


def test_a_fingerprint_is_what_ssh_keygen_prints(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", tmp_path / "k"], check=True)
    shown = subprocess.run(
        ["ssh-keygen", "-lf", tmp_path / "k.pub"], capture_output=True, text=True, check=True
    ).stdout
    (entry,) = parse(f"box {(tmp_path / 'k.pub').read_text()}", FILE)
    assert entry.key.fingerprint == shown.split()[1]
    assert f"({entry.key.word})" in shown
