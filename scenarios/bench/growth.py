"""Growth: how the counted work of schedulers and of the search for parents grows with their load.

Work is counted, not timed: the count is the same on any machine, and a count that grows faster than
its load is found before it costs hours.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from wattkeeper.policies.matching.graph import Graph
from wattkeeper.policies.matching.matchers import MATCHERS, Matcher
from wattkeeper.policies.matching.relation import retained_share
from wattkeeper.policies.matching.search import ParentSearch
from wattkeeper.scenarios.bench.baselines import SHIPPED, JobsTrace
from wattkeeper.scenarios.bench.traces import NAME, generate_trace
from wattkeeper.scenarios.inputs.synthetic_models import graph_of
from wattkeeper.scenarios.kinds.simulation import execute
from wattkeeper.scenarios.run.read import read_inputs
from wattkeeper.scenarios.spec.loading import load
from wattkeeper.sim.search.architectures import draw_candidates
from wattkeeper.traces.library import folder
from wattkeeper.traces.library.folder import keep_traces

ENTRY: Final = "growth"
"""Its name among the entries of `wattkeeper bench`."""

JOBS: Final = (1_000, 4_000)
GPUS: Final = 64
LOAD: Final = 1.2
"""Of the jobs that schedulers run: more than can be done, so that the queue grows with the jobs."""

MODELS: Final = (100, 800)
CHILDREN: Final = 20
"""Models of a zoo, mutations of one another, and further ones that look for a parent."""

WITHOUT_PREEMPTION: Final = 1.1
WITH_PREEMPTION: Final = 1.2
"""Largest exponents of growth that are allowed."""

SCHEDULERS: Final[dict[str, float]] = {
    "fifo": WITHOUT_PREEMPTION,
    "fjf": WITHOUT_PREEMPTION,
    "sjf": WITHOUT_PREEMPTION,
    "fair-share": WITHOUT_PREEMPTION,
    "easy-backfill": WITHOUT_PREEMPTION,
    "dlas-gpu": WITH_PREEMPTION,
    "srtf": WITH_PREEMPTION,
    "las": WITH_PREEMPTION,
    "gittins": WITH_PREEMPTION,
}
"""The largest exponent of each scheduler, by kind."""
SEARCH: Final = 1.1
"""The largest exponent of the search for parents."""


class Growth(NamedTuple):
    """Counted work at two sizes.

    Attributes:
        what: What works.
        unit: What is counted.
        sizes: The two sizes.
        work: The work at each.
        most: Largest exponent that is allowed.
    """

    what: str
    unit: str
    sizes: tuple[int, int]
    work: tuple[int, int]
    most: float

    @property
    def exponent(self) -> float:
        """Power of the size that the work grows with: 1 if it doubles with the size."""
        return math.log(self.work[1] / self.work[0]) / math.log(self.sizes[1] / self.sizes[0])

    @property
    def is_allowed(self) -> bool:
        """Whether it grows as slowly as it must."""
        return self.exponent <= self.most


def measure_growth() -> list[Growth]:
    """Count the work of each scheduler, and that of the search for parents."""
    return [*_grow_schedulers(), *_grow_searches()]


def _grow_schedulers() -> Iterator[Growth]:
    with tempfile.TemporaryDirectory(prefix="wattkeeper-bench-") as scratch, keep_traces():
        traces = {jobs: _write_trace(Path(scratch) / str(jobs), jobs) for jobs in JOBS}
        for kind, most in SCHEDULERS.items():
            few, many = (_schedule(kind, traces[jobs]) for jobs in JOBS)
            yield Growth(kind, "events and questions", JOBS, (few, many), most)


def _grow_searches() -> Iterator[Growth]:
    graphs = [
        graph_of(network.architecture)
        for network in draw_candidates(MODELS[1] + CHILDREN, np.random.default_rng(1))
    ]
    children = graphs[MODELS[1] :]
    for name, matcher in MATCHERS.items():
        few, many = (_search(matcher, graphs[:models], children) for models in MODELS)
        yield Growth(f"parent, {name}", "models scored or aligned", MODELS, (few, many), SEARCH)


def to_json(growth: Growth) -> dict[str, Any]:
    """A growth for `--json`."""
    found = {"exponent": growth.exponent, "is_allowed": growth.is_allowed}
    return growth._asdict() | found


def _write_trace(path: Path, jobs: int) -> Path:
    """Write a trace of generated jobs; returns its path."""
    path.mkdir()
    made = generate_trace(JobsTrace(kind="jobs", jobs=jobs, load=LOAD, gpus=GPUS), SHIPPED.parent)
    folder.write(made, path / NAME)
    return path / NAME


def _schedule(kind: str, trace: Path) -> int:
    """Run a trace; returns the events, and the jobs that the scheduler asked about."""
    policy = {"kind": kind} | ({"estimates": "perfect"} if kind == "easy-backfill" else {})
    settings = [
        f"workload.trace={json.dumps(str(trace))}",
        f"cluster.gpus={GPUS}",
        f"policies.select={json.dumps(policy)}",
    ]
    loaded = load("scheduler-pool", settings)
    (spec,) = loaded.runs
    worlds: list[Any] = []
    execute(spec, read_inputs(loaded).runs[spec.variant.name], worlds.append)
    return int(worlds[0].env.events + worlds[0].questions)


def _search(matcher: Matcher[Any, Any], parents: Sequence[Graph], children: Sequence[Graph]) -> int:
    """Find the best parent of each child; returns the models that were scored or aligned."""
    search: ParentSearch[Any] = ParentSearch(
        matcher, [matcher.sketch(parent) for parent in parents]
    )
    work = 0
    for child in children:
        score = partial(_score, matcher, parents, child)
        search.best(child, score, retained=partial(_retain, parents, child))
        work += search.scored + search.refined
    return work


def _score(matcher: Matcher[Any, Any], parents: Sequence[Graph], child: Graph, place: int) -> float:
    return matcher.score_graphs(parents[place], child)


def _retain(parents: Sequence[Graph], child: Graph, place: int) -> float:
    return retained_share(parents[place], child)
