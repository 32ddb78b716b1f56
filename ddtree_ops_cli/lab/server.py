"""`python -m ddtree_ops_cli.lab.server`: the reference engine behind SGLang's HTTP surface.

One process: the event loop answers HTTP, one thread owns the engine. A start that fails says why in
one line on stderr and ends with the exit code of its error; SIGTERM aborts what runs and exits 0.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING

from ..errors import DdtreeError, Interrupted
from .arguments import Arguments, parse

if TYPE_CHECKING:
    from .scheduler import Engine
    from .tokenizer import Tokenizer

SHUTDOWN_SECONDS = 2
"""How long open connections may still take their answers after SIGTERM."""

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until a signal; the exit code."""
    try:
        arguments = parse(argv)
        _configure_logging(arguments.log_level)
        serve(arguments)
    except DdtreeError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def serve(arguments: Arguments) -> None:
    """Listen, load, answer. Raises DdtreeError when the server cannot start, Interrupted on ^C."""
    import uvicorn

    from .endpoints import application
    from .scheduler import Scheduler
    from .service import Service

    listener = _listen(arguments.host, arguments.port)
    scheduler = Scheduler(
        speculative=arguments.speculation.algorithm != "none",
        log_steps=_step_log(arguments.log_steps),
    )
    service = Service(arguments, scheduler)
    failures: list[Exception] = []

    class Server(uvicorn.Server):
        # uvicorn would raise the signal again at the end; a stop that was asked for is no failure.
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            scheduler.close()
            if sig == signal.SIGINT:
                failures.append(Interrupted("interrupted"))

    server = Server(
        uvicorn.Config(
            application(service),
            log_config=None,
            log_level=arguments.log_level,
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        )
    )

    # Its own messages of starting and stopping say nothing that ours do not.
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)

    def ready(engine: Engine, tokenizer: Tokenizer) -> None:
        service.take(engine, tokenizer)
        host, port = listener.getsockname()[:2]
        address = f"[{host}]" if ":" in host else host
        log.info("ready: %s on http://%s:%d", arguments.served_model_name, address, port)

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    if arguments.allow_hybrid_unsafe:
        log.warning(
            "--speculative-ddtree-allow-hybrid-unsafe has no effect: the lab engine is exact"
        )
    scheduler.start(lambda: _load(arguments), ready, failed)
    server.run(sockets=[listener])
    scheduler.close()
    if failures:
        raise failures[0]


def check(argv: Sequence[str]) -> None:
    """Raise what a start with these flags would end with, a busy port aside."""
    _load(parse(argv))


def _load(arguments: Arguments) -> tuple[Engine, Tokenizer]:
    from .decode import Engine
    from .tokenizer import Tokenizer

    engine = Engine.load(
        arguments.model_path,
        arguments.draft_model_path,
        arguments.speculation,
        arguments.context_length,
    )
    return engine, Tokenizer.load(arguments.model_path)


def _listen(host: str, port: int) -> socket.socket:
    """A socket bound to this address alone."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        # Named as TCP, or asyncio leaves Nagle's algorithm on: 40 ms for each small answer.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise DdtreeError(
            f"cannot listen: {error.strerror or error}",
            where=f"{host}:{port}",
            mend="choose another --host or --port, or stop what uses this one",
        ) from error
    return listener


def _step_log(file: Path | None) -> IO[str] | None:
    if file is None:
        return None
    try:
        return file.open("a", encoding="utf-8")
    except OSError as error:
        raise DdtreeError(
            f"cannot write the log of steps: {error.strerror}",
            where=str(file),
            mend="give --speculative-ddtree-log-steps a file that can be written",
        ) from error


def _configure_logging(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="[%(asctime)s] %(levelname)s %(message)s"
    )


if __name__ == "__main__":
    sys.exit(main())
