"""Many seeds, in several processes."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from leasehold.sim.cluster import Result, run_seed

_CHUNK = 20


def _collect_seldom() -> None:
    """A seed leaves little behind, and looking for it ten times a second costs more than it."""
    gc.freeze()
    gc.set_threshold(100_000)


def sweep(seeds: Iterable[int], profile: str | None = None, jobs: int = 1) -> Iterator[Result]:
    """The results in the order of the seeds."""
    run = partial(run_seed, profile=profile)
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs, initializer=_collect_seldom) as pool:
        yield from pool.map(run, seeds, chunksize=_CHUNK)
