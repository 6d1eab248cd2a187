"""One scene: the seconds until each of the four said it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.detection.scenes import SCENES, staged
from tests.detection.watch import SOURCES, Watch

LIMIT_SECONDS = 15.0
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Result:
    name: str
    seconds: dict[str, float]
    """By source; what never said it is not in it."""
    sentence: str

    @property
    def good(self) -> bool:
        return all(self.seconds.get(source, 1e9) <= LIMIT_SECONDS for source in SOURCES)


def measure(name: str, shared_dsn: str, folder: Path) -> Result:
    scene = SCENES[name]
    with staged(scene, shared_dsn, folder) as stage:
        inject = scene.play(stage)
        watch = Watch(stage.url, stage.alerts, stage.env, scene.kinds, scene.words)
        watch.silent()
        watch.start()
        try:
            began = inject()
            said = watch.wait(_PATIENCE_SECONDS)
        finally:
            watch.stop()
    seconds = {source: max(0.0, told.at - began) for source, told in said.items()}
    return Result(name, seconds, said["status"].sentence if "status" in said else "")
