"""Runs many seeds in several processes."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from leasework_lab.sim.cluster import Result, run_seed

_CHUNK = 20


def _collect_between_seeds() -> None:
    """Collect garbage only between seeds: during one, a collection finds little and costs more than
    it saves."""
    gc.freeze()
    gc.disable()


def _run_and_collect(seed: int, profile: str | None) -> Result:
    result = run_seed(seed, profile=profile)
    gc.collect()
    return result


def sweep(seeds: Iterable[int], profile: str | None = None, jobs: int = 1) -> Iterator[Result]:
    """Run the seeds, and yield the results in their order."""
    if jobs <= 1:
        yield from map(partial(run_seed, profile=profile), seeds)
        return
    run = partial(_run_and_collect, profile=profile)
    with ProcessPoolExecutor(jobs, initializer=_collect_between_seeds) as pool:
        yield from pool.map(run, seeds, chunksize=_CHUNK)
