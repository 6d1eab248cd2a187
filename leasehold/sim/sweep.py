"""Many seeds, in several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from leasehold.sim.cluster import Result, run_seed

_CHUNK = 20


def sweep(seeds: Iterable[int], profile: str | None = None, jobs: int = 1) -> Iterator[Result]:
    """The results in the order of the seeds."""
    run = partial(run_seed, profile=profile)
    if jobs <= 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, seeds, chunksize=_CHUNK)
