"""Several hosts at once."""

from __future__ import annotations

import json

from tests.rig.conftest import Box, Operator
from tests.rig.rig import Rig, RigHost


def test_status_visits_hosts_side_by_side_with_one_login_each(
    rig: Rig, gpu1: Box, behind: tuple[RigHost, RigHost, RigHost], operator: Operator
) -> None:
    first, second, inner = behind
    operator.configure(
        "Host inner\nHostName 10.77.13.2\nProxyJump 10.77.11.2,10.77.12.2\n"
        "Host second\nHostName 10.77.12.2\nProxyJump 10.77.11.2\n"
    )
    operator.knows(
        (gpu1.address, gpu1.host), ("10.77.11.2", first), ("10.77.12.2", second),
        ("10.77.13.2", inner),
    )  # fmt: skip
    for name, address in (("gpu1", gpu1.address), ("second", "second"), ("inner", "inner")):
        operator.profile(name, address)
    before = {host.name: host.logins() for host in (gpu1.host, *behind)}
    done = operator.ddtree("status", "--json")
    found = json.loads(done.stdout)
    assert set(found) == {"gpu1", "second", "inner", "lab"}
    # Each was visited, and has no Docker.
    errors = {name: host["error"] for name, host in found.items() if "error" in host}
    assert set(errors) == {"gpu1", "second", "inner"}
    assert all("Docker is not running" in error for error in errors.values())
    assert done.returncode == 7, done.stderr
    after = {host.name: host.logins() - before[host.name] for host in (gpu1.host, *behind)}
    # The jump hosts are shared; "second" is a host and a jump host by one way.
    assert after == {"gpu1": 1, "jump1": 1, "jump2": 1, "inner": 1}
