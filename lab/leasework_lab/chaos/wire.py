"""Just enough of PostgreSQL's protocol to know what a request writes and where its answer ends."""

from __future__ import annotations

import asyncio
import re
import struct
from typing import TypeAlias

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter

_WRITES = re.compile(
    rb"\b(?:insert|update|delete|copy|commit|enqueue|nextval|set_config)\b", re.IGNORECASE
)
_SETTINGS = re.compile(rb"set_config\('synchronous_commit'")
_READY_IDLE = b"I"


async def read_message(reader: Reader) -> tuple[bytes, bytes]:
    """(kind, the whole message). Raises IncompleteReadError at the end of the stream."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head[:1], head + await reader.readexactly(length - 4)


async def read_startup(reader: Reader) -> bytes:
    """The first message of a connection, which has no kind."""
    head = await reader.readexactly(4)
    (length,) = struct.unpack("!I", head)
    return head + await reader.readexactly(length - 4)


class Requests:
    """The text of a client's requests, including statements that it prepared earlier."""

    def __init__(self) -> None:
        self._prepared: dict[bytes, bytes] = {}
        self.text = b""
        """Everything requested since the last answer."""

    def saw(self, kind: bytes, message: bytes) -> None:
        body = message[5:]
        if kind == b"P":
            name, _, text = body.partition(b"\0")
            self._prepared[name] = text
        elif kind == b"B":
            self.text += self._prepared.get(body.split(b"\0", 2)[1], b"") + b"\n"
        elif kind == b"Q":
            self.text += body + b"\n"

    @property
    def writes(self) -> bool:
        """May it have changed anything? A connection's own settings do not count."""
        return bool(_WRITES.search(self.text)) and not _SETTINGS.search(self.text)

    def answered(self) -> None:
        self.text = b""


def ends_transaction(message: bytes) -> bool:
    """Is this a ReadyForQuery outside of any transaction? Then all writes are committed."""
    return message[5:6] == _READY_IDLE
