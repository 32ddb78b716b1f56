"""What `status` calls a service, by what its engine answers."""

from __future__ import annotations

import dataclasses
import json
import threading
import time
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from ddtree_ops_cli.hosts.clock import Clock
from ddtree_ops_cli.services.observation import Observed, observe
from ddtree_ops_cli.services.runtimes import Instance
from tests.services.test_labels import LABELS

AHEAD_S = 7200.0
SERVER_INFO = {"version": "0.5.17", "internal_states": [{"avg_spec_accept_length": 4.5}]}
INSTANCE = Instance(LABELS, "running", "container 3f2a", "", time.time() + AHEAD_S - 60, (), {})


class Engine:
    """A server with these answers: a path's status and body."""

    def __init__(self, answers: Mapping[str, tuple[int, Any]]) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = answers[self.path]
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, *_: Any) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def ends() -> Iterator[list[Engine]]:
    started: list[Engine] = []
    yield started
    for engine in started:
        engine.end()


class Host:
    """As much of a runtime as is asked; its clock is two hours ahead."""

    clock = Clock(AHEAD_S, 0.5)

    def __init__(self, url: str) -> None:
        self._url = url

    def reach(self, _: Instance) -> str:
        return self._url

    def ended(self, _: Instance) -> str | None:
        return "it ended with exit code 1"


def seen(url: str, instance: Instance = INSTANCE) -> Observed:
    host: Any = Host(url)
    return observe(host, instance)


@pytest.mark.parametrize(
    ("answers", "health", "detail"),
    [
        ({"/health_generate": (503, {})}, "starting", ""),
        ({"/health_generate": (500, {})}, "unhealthy", "HTTP 500"),
        (
            {"/health_generate": (200, {}), "/server_info": (500, {})},
            "unhealthy",
            "/server_info",
        ),
        (
            {
                "/health_generate": (200, {}),
                "/server_info": (200, SERVER_INFO),
            },
            "healthy",
            "",
        ),
    ],
)
def test_it_is_the_engine_that_says_how_a_service_is(
    ends: list[Engine], answers: Mapping[str, tuple[int, Any]], health: str, detail: str
) -> None:
    ends.append(Engine(answers))
    found = seen(ends[0].url)
    assert (found.health, detail in found.detail) == (health, True)
    by_its_clock = time.time() + AHEAD_S - INSTANCE.started_at
    assert found.uptime_s == pytest.approx(by_its_clock, abs=30)
    assert found.accept_length == (4.5 if health == "healthy" else None)


def test_one_that_runs_and_does_not_listen_is_unhealthy() -> None:
    found = seen("http://127.0.0.1:9")
    assert (found.health, found.accept_length) == ("unhealthy", None)
    assert found.detail


def test_one_that_ended_is_dead_with_the_reason_and_where_to_look() -> None:
    found = seen("http://127.0.0.1:9", dataclasses.replace(INSTANCE, state="dead"))
    assert found.health == "dead"
    assert found.detail == "it ended with exit code 1; see `ddtree logs lab --gpu 1`"
    assert found.uptime_s is None


def test_a_clock_that_was_set_back_since_makes_no_negative_age() -> None:
    future = dataclasses.replace(INSTANCE, started_at=time.time() + 2 * AHEAD_S)
    assert seen("http://127.0.0.1:9", future).uptime_s == 0
