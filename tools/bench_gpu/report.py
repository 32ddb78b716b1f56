"""The results in Markdown. Pure: from the document, as far as it has come."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

AIMS = {16: 1.15, 32: 1.35}
"""Milliseconds per step, tree over linear, by budget, before any tuning."""
_KERNELS = 12
_GAPS = 6


def markdown(document: Mapping[str, Any]) -> str:
    parts = (
        _host(document),
        _contests(document.get("contests", {}), document.get("servers", {})),
        _profiles(document.get("profiles", {})),
        _memory(document.get("memory", {}), document.get("memory_used_gib", {})),
        _pinned(document),
        _failures(document.get("failures", {})),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _host(document: Mapping[str, Any]) -> str:
    host = document.get("host", {})
    return "\n".join(f"- {name}: {value}" for name, value in host.items())


def _contests(contests: Mapping[str, Any], servers: Mapping[str, Any]) -> str:
    rows = []
    for title, found in contests.items():
        comparison = found["comparison"]
        if comparison is None:
            rows.append([title, *["-"] * 8, "every round was disturbed"])
            continue
        overall = comparison["overall"]
        tree, linear = (overall["arms"][arm] for arm in ("tree", "linear"))
        rows.append(
            [
                title,
                _number(found["step_ms"]["linear"], 2),
                _number(found["step_ms"]["tree"], 2),
                _ratio(found["step_ratio"]),
                _aim(title, found["step_ratio"], servers),
                _number(linear["decode_tok_s"], 1),
                _number(tree["decode_tok_s"], 1),
                _ratio(overall["ratio"]),
                f"{_number(linear['accept_length'], 2)} / {_number(tree['accept_length'], 2)}",
                f"{found['counted']} of {found['rounds']}",
            ]
        )
    steps = ("linear ms/step", "tree ms/step", "tree / linear (95 %)", "aim")
    rates = ("linear tok/s", "tree tok/s", "tree / linear (95 %)", "accept linear / tree")
    return _section("Contests", ("contest", *steps, *rates, "rounds counted"), rows)


def _aim(title: str, ratio: Mapping[str, Any] | None, servers: Mapping[str, Any]) -> str:
    """Only of forced acceptance: there a ratio of steps is that of the same work."""
    if "forced_accept_length" not in servers.get(title, {}) or ratio is None:
        return "-"
    aim = next((a for budget, a in AIMS.items() if f"-tree-{budget}-" in f"{title}-"), None)
    if aim is None:
        return "-"
    return f"<= {aim}: {'met' if ratio['estimate'] <= aim else 'MISSED'}"


def _profiles(profiles: Mapping[str, Any]) -> str:
    if not profiles:
        return ""
    titles = list(profiles)
    families = dict.fromkeys(
        share["name"] for found in profiles.values() for share in found["families"]
    )
    rows = [
        ["step, ms", *(_number(profiles[title]["step_ms"], 2) for title in titles)],
        ["device busy, ms", *(_number(profiles[title]["busy_ms"], 2) for title in titles)],
        ["device idle, ms", *(_number(profiles[title]["idle_ms"], 2) for title in titles)],
        ["launches", *(_number(profiles[title]["launches"], 0) for title in titles)],
    ]
    for family in families:
        shares = [
            {one["name"]: one for one in profiles[title]["families"]}.get(family)
            for title in titles
        ]
        rows.append([family, *(_share(share) for share in shares)])
    table = _section(
        "One step on the device: milliseconds / of that alone (launches)", ("", *titles), rows
    )
    return "\n\n".join([table, *(_detail(title, found) for title, found in profiles.items())])


def _detail(title: str, found: Mapping[str, Any]) -> str:
    rows = [
        [_code(one["name"]), _number(one["ms"], 3), _number(one["calls"], 1)]
        for one in found["kernels"][:_KERNELS]
    ]
    gaps = [
        [_code(one["after"]), _code(one["before"]), _number(one["ms"], 3), _number(one["calls"], 1)]
        for one in found["gaps"][:_GAPS]
    ]
    kernels = _section(f"Longest kernels, {title}", ("kernel", "ms/step", "calls/step"), rows)
    idle = _section(f"Idle gaps, {title}", ("after", "before", "ms/step", "gaps/step"), gaps)
    return "\n\n".join(part for part in (kernels, idle) if part)


def _memory(memory: Mapping[str, Any], used: Mapping[str, Any]) -> str:
    rows = []
    for title, found in memory.items():
        needs, says = found["needs_gib"], found["printed_gib"]
        held = found["held_gib"]
        rows.append(
            [
                title,
                *(
                    f"{_number(needs[part], 2)} / {_number(says[part], 2)}"
                    for part in ("weights", "node_states", "states", "cache")
                ),
                f"{_number(needs['rest'], 2)} / {_number(says['graphs'], 2)}",
                f"{_number(needs['total'], 1)} / {_number(says['total'], 1)}",
                ", ".join(f"{gib:.1f}" for gib in held.values()) or "-",
                ""
                if found["printed_alone"]
                else "another server was starting: weights and graphs "
                "are differences of free memory",
                _number(found["ready_after_s"], 0),
            ]
        )
    columns = ("server", "weights", "node states", "states", "cache", "rest / graphs", "total")
    table = _section(
        "Memory in GiB: as planned / as printed",
        (*columns, "held (nvidia-smi)", "", "ready after, s"),
        rows,
    )
    lines = [
        f"- in use on all GPUs with {title}: "
        + ", ".join(f"{uuid[:12]} {gib:.1f} GiB" for uuid, gib in found.items())
        for title, found in used.items()
    ]
    return "\n\n".join(part for part in (table, "\n".join(lines)) if part)


def _pinned(document: Mapping[str, Any]) -> str:
    lines = []
    for services in document.get("pinned_sight", {}).values():
        for title, seen in services.items():
            holds = ", ".join(seen["holds_memory_on"]) or "not shown by nvidia-smi"
            lines.append(
                f"- {title}: pinned to {seen['own']}, sees {', '.join(seen['visible'])}; "
                f"holds memory on: {holds}"
            )
    for found in document.get("pinned_kill", {}).values():
        lines.append(
            f"- {found['killed']} was killed; {found['answers_of']} gave {found['answers']} "
            "answers meanwhile, all the same as before and after "
            f"({found['answer_tokens']} tokens)"
        )
    return "## Pinned services\n\n" + "\n".join(lines) if lines else ""


def _failures(failures: Mapping[str, str]) -> str:
    if not failures:
        return ""
    blocks = [f"- {title}:\n\n```\n{why}\n```" for title, why in failures.items()]
    return "## Failed, or not run\n\n" + "\n".join(blocks)


def _section(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    if not lines:
        return ""
    head = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return f"## {title}\n\n" + "\n".join([*head, *lines])


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _ratio(ratio: Mapping[str, Any] | None) -> str:
    if ratio is None:
        return "-"
    if ratio["low"] is None:
        return f"{ratio['estimate']:.3f}"
    return f"{ratio['estimate']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"


def _share(share: Mapping[str, Any] | None) -> str:
    if share is None:
        return "-"
    return f"{share['ms']:.2f} / {share['alone_ms']:.2f} ({share['calls']:.0f})"


def _code(name: str) -> str:
    return f"`{name.replace('|', '/').replace('`', '')}`"
