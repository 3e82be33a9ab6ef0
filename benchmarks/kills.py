"""Does a run that is killed again and again end with the bits of one that nobody killed?

``python -m benchmarks.kills`` starts a run with a checkpoint, kills it by SIGKILL at a random moment, starts it again
from the checkpoint, a hundred times, which takes some minutes. The checkpoint is written after every step, so that many
kills hit a write.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import thermint
from thermint import Evidence
from thermint.runtime import journal
from thermint.runtime.journal import Journal

OPTIONS: dict[str, Any] = {
    "draws": 400,
    "populations": 2,
    "seed": 3,
    "degree": 2,
    "target_error": 1e-300,  # never reached: the evaluations end it
    "max_evaluations": 80_000,
    "progress": False,
}
LONGEST = 1.5  # seconds that a run may go on before it is killed


def same(a: Evidence, b: Evidence) -> bool:
    """Say whether two results are the same to the last bit, but for the time they took."""
    for field in ("log_evidence", "standard_error", "mc_error", "evaluations", "warnings", "settings", "diagnostics"):
        if json.dumps(a.as_dict()[field]) != json.dumps(b.as_dict()[field]):
            return False
    assert a.posterior is not None
    assert b.posterior is not None
    tables = np.array_equal(a.rungs, b.rungs, equal_nan=True) and np.array_equal(a.estimates, b.estimates)
    values = b.posterior.values
    return tables and all(np.array_equal(mine, values[name]) for name, mine in a.posterior.values.items())


def child(path: str, every: float, pipe: Any) -> None:
    """Run, and send a word when the first step begins, and the answer."""
    journal.SAVE_INTERVAL = every
    step, begun = Journal.step, False

    def tell(self: Journal, make: Any) -> Any:
        nonlocal begun
        if not begun:
            pipe.send("begun")
            begun = True
        return step(self, make)

    Journal.step = tell  # type: ignore[method-assign]
    pipe.send(thermint.evidence(thermint.paper.linear.model(), **OPTIONS, checkpoint=path))


def ended(server: Any, path: Path, every: float, delay: float | None) -> Evidence | None:
    """Return the answer of a child, or None if it was killed before, so many seconds after its first step."""
    here, there = server.Pipe()
    process = server.Process(target=child, args=(str(path), every, there))
    process.start()
    there.close()
    try:
        first = here.recv()
        if isinstance(first, Evidence):  # it was at its end
            return first
        if here.poll(delay):
            return here.recv()
        process.kill()
    finally:
        process.join()
    return None


def survive(folder: Path, kills: int, seed: int) -> tuple[Evidence, list[int]]:
    """Kill a run so often, let the last one end, and compare it with one that nobody killed.

    Returns:
        The answer, and the size of the checkpoint after every kill.

    Raises:
        AssertionError: the bits are not the same.
    """
    # Children start from a process that has imported everything and started nothing.
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(["thermint", "thermint.inference.evidence", "benchmarks.kills"])
    chance = random.Random(seed)
    whole = ended(server, folder / "whole", 1e9, None)
    assert whole is not None
    run, sizes = folder / "run", list[int]()
    while len(sizes) < kills:
        answer = ended(server, run, 0.0, chance.uniform(0.0, LONGEST))
        if answer is None:
            sizes.append(run.stat().st_size if run.exists() else 0)
        else:
            assert same(answer, whole)
            run.unlink()
    answer = ended(server, run, 0.0, None)
    assert answer is not None
    assert same(answer, whole)
    return answer, sizes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        answer, sizes = survive(Path(folder), options.kills, options.seed)
    print(f"linear regression, {OPTIONS}")
    print(f"{options.kills} kills, after which the checkpoint had {len(set(sizes))} different sizes;")
    print(f"the same bits each time: log evidence {answer.log_evidence!r}, {time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
