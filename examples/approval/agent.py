"""An agent that asks a model, needs a person's approval for a tool, and survives kill -9.

leasework worker agent:app
"""

import asyncio
import os
from pathlib import Path

from leasework import App, Context, Rate

app = App(os.environ.get("LEASEWORK_DSN", "embedded"), name="approval", recover_within=9)
model = app.limit("model", rate=Rate(20, per=1.0))
CALLS = Path(os.environ.get("CALLS", "calls.log"))


def note(call: str) -> None:
    with CALLS.open("a") as calls:
        calls.write(f"{call}\n")


async def ask_model(turn: int, said: list[str]) -> str:
    """Stands for the call of a language model, which takes its time and costs money."""
    note(f"model {turn}")
    await asyncio.sleep(0.3)
    return ["search: prices", "pay: 120 EUR", "done: booked"][turn]


async def run_tool(request: str) -> str:
    note(f"tool {request}")
    return f"result of {request}"


@app.task(name="agent", limits=[model])
async def agent(ctx: Context, question: str) -> str:
    said = [question]
    for turn in range(10):
        reply = await ctx.step("model", ask_model, turn, said, key=turn, retry=3, timeout=60)
        said.append(reply)
        if reply.startswith("done"):
            return reply
        if reply.startswith("pay"):
            answer = await ctx.event("approval", key=turn, timeout=86_400)
            if not answer["ok"]:
                return "a person refused the payment"
        said.append(await ctx.step("tool", run_tool, reply, key=turn))
    raise RuntimeError("the agent did not finish in 10 turns")
