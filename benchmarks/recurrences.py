"""How many recurrences a second one core replays, in CPU time and by counting events.

Runs the shipped scenario `zeus-nsdi23` if its traces are imported, otherwise `quickstart`, through
the real world with journal, metrics and results: `make speed`.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from wattkeeper.scenarios.run.run import ScenarioResult, run
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.loop import Callback
from wattkeeper.traces.library import store

SEEDS = 5


def empty_loop(events: int) -> float:
    """CPU seconds of as many events on the same clock that do nothing: the floor."""
    began = time.process_time()
    env = SimulationEnvironment()
    left = iter(range(events))

    def again(_: object = None) -> None:
        if next(left, None) is not None:
            env.schedule_at(env.now + 1.0, Callback(again))

    again()
    env.run()
    return time.process_time() - began


def main() -> None:
    name = "zeus-nsdi23" if "zeus-nsdi23" in store.names() else "quickstart"
    loaded = load(name, [f"seeds={SEEDS}"])
    run(load(name))
    began = time.process_time()
    done: ScenarioResult = run(loaded)
    with tempfile.TemporaryDirectory() as folder:
        done.save(Path(folder) / "results")
    cpu_s = time.process_time() - began
    manifest = done.manifest
    decisions = sum(result.tables["decisions"].num_rows for result in done.results)
    print(f"scenario         {name}, {SEEDS} seeds, {len(loaded.scenario.variants)} variants")
    print(f"recurrences      {manifest['jobs']:,}")
    print(f"attempts         {manifest['attempts']:,}")
    print(f"events           {manifest['events']:,}")
    print(f"decisions        {decisions:,}")
    print(f"CPU              {cpu_s:.3f} s")
    print(f"recurrences/s    {manifest['jobs'] / cpu_s:,.0f}")
    print(f"events/s         {manifest['events'] / cpu_s:,.0f}")
    print(f"empty events     {empty_loop(manifest['events']):.3f} s CPU for as many")


if __name__ == "__main__":
    main()
