"""An application whose arguments and results are encoded, in a module that a child process
imports."""

from __future__ import annotations

from dataclasses import dataclass

from psycopg import AsyncConnection

from leasework import App, Context


class Turned:
    """Turns the bits around. Each text is different, as with encryption."""

    def __init__(self) -> None:
        self.made = 0

    def encode(self, data: bytes) -> bytes:
        self.made += 1
        return b"%06d" % self.made + bytes(255 - byte for byte in data)

    def decode(self, data: bytes) -> bytes:
        if not data[:6].isdigit():
            raise ValueError("not mine")
        return bytes(255 - byte for byte in data[6:])


@dataclass
class Card:
    number: str


app = App(name="sealed", codec=Turned())


@app.task(name="in_loop")
async def in_loop(card: Card, secret: str) -> Card:
    return Card(card.number + secret)


@app.task(name="in_thread")
def in_thread(card: Card, secret: str) -> Card:
    return Card(card.number + secret)


@app.task(name="in_process", executor="process")
def in_process(card: Card, secret: str) -> Card:
    return Card(card.number + secret)


@app.task(name="completes")
async def completes(ctx: Context, dsn: str) -> None:
    async with await AsyncConnection.connect(dsn) as connection:
        await ctx.complete(on=connection, result={"secret": "hunter2"})


@app.every(seconds=1, name="plain", arguments={"text": "in the code"})
@app.task(name="of_schedule")
async def of_schedule(text: str) -> str:
    return text
