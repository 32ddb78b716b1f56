"""Where a job of the engine's thread meets the request that waits for it on the event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request

from .answer import Snapshot
from .asks import Ask
from .scheduler import Job, Scheduler


class ClientGoneError(Exception):
    """The client closed the connection before its answer was ready."""


class Reception:
    """Submits one job and hands its snapshots on; the job is abandoned when the client leaves."""

    def __init__(
        self, scheduler: Scheduler, request: Request, job_id: str, ask: Ask, *, streams: bool
    ) -> None:
        self._scheduler = scheduler
        self._request = request
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Snapshot] = asyncio.Queue()
        self.job = Job(id=job_id, ask=ask, deliver=self._deliver, streams=streams)
        scheduler.submit(self.job)

    async def last(self) -> Snapshot:
        """The finished answer. Raises ClientGoneError."""
        async with contextlib.aclosing(self.snapshots()) as snapshots:
            async for snapshot in snapshots:
                final = snapshot
        return final

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """Every state of the answer up to its end. Raises ClientGoneError."""
        gone = asyncio.ensure_future(self._until_gone())
        try:
            while True:
                arrived = asyncio.ensure_future(self._arrived.get())
                await asyncio.wait({arrived, gone}, return_when=asyncio.FIRST_COMPLETED)
                if not arrived.done():
                    arrived.cancel()
                    raise ClientGoneError
                yield arrived.result()
                if arrived.result().finish is not None:
                    return
        finally:
            gone.cancel()
            self._scheduler.abandon(self.job)

    async def _until_gone(self) -> None:
        while (await self._request.receive())["type"] != "http.disconnect":
            pass

    def _deliver(self, snapshot: Snapshot) -> None:
        # The loop may have been closed by a shutdown that did not wait for this step.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._arrived.put_nowait, snapshot)
