"""Frames between the daemon's event loop and its compile helper, in pieces that hold nobody up.

A stream of asyncio's gathers what it sends and receives in buffers that grow: three copies of a grammar of 10 MB, 10
to 20 ms in which no session is stepped. Here the kernel copies from the frame's own parts and into the frame's own
memory, a piece at a time, and the loop turns between two pieces.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from typing import Final

from constraintd.grammar.sandbox_protocol import LENGTH

# The kernel copies so much in 0.1 ms.
_PIECE_BYTES: Final = 128 << 10


class FrameSocket:
    """Owns a connected socket. Used from one event loop, but for `close`."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self._turn = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    def begin(self, frame: Sequence[bytes]) -> asyncio.Task[None]:
        """Begins to send a frame behind those begun before; it goes out whole, whoever waits for that or does not.

        Raises ConnectionError if this is closed.
        """
        if self._closed:
            raise ConnectionError("it has closed its socket")
        task = self._running_loop().create_task(self._send(frame))
        self._sending.add(task)
        task.add_done_callback(self._sent)
        return task

    async def send(self, frame: Sequence[bytes]) -> None:
        """Sends a frame. Cancelling leaves it to be sent all the same. Raises ConnectionError."""
        task = self.begin(frame)
        await asyncio.wait([task])
        if task.cancelled():
            raise ConnectionError("it has closed its socket")
        task.result()

    async def receive(self, most: int) -> memoryview:
        """The next frame. For one reader at a time.

        Raises ConnectionError, EOFError if the other side has closed, and ValueError for more than `most` bytes.
        """
        head = memoryview(bytearray(LENGTH.size))
        await self._fill(head)
        [size] = LENGTH.unpack(head)
        if size > most:
            raise ValueError(f"a frame of {size} bytes, over {most}")
        frame = memoryview(bytearray(size))
        await self._fill(frame)
        return frame

    def close(self) -> None:
        """Ends what is being sent, and closes. A `receive` under way is its caller's to cancel."""
        if self._closed:
            return
        self._closed = True
        for task in self._sending:
            task.cancel()
        if self._loop is not None:  # before its descriptor can be another socket's
            self._loop.remove_reader(self.connection)
            self._loop.remove_writer(self.connection)
        self.connection.close()

    async def _send(self, frame: Sequence[bytes]) -> None:
        loop = self._running_loop()
        async with self._turn:
            for part in frame:
                for begin in range(0, len(part), _PIECE_BYTES):
                    if begin:
                        await asyncio.sleep(0)
                    await loop.sock_sendall(self.connection, memoryview(part)[begin : begin + _PIECE_BYTES])

    async def _fill(self, memory: memoryview) -> None:
        loop = self._running_loop()
        got = 0
        while got < len(memory):
            if got:
                await asyncio.sleep(0)
            piece = await loop.sock_recv_into(self.connection, memory[got : got + _PIECE_BYTES])
            if not piece:
                raise EOFError
            got += piece

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # who waits has it; asked for here, or asyncio logs it as never seen

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        return self._loop
