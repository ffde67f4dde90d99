"""A toy second engine: rounds of federated training over a million clients.

Run as a program, it writes a results folder, and prints what it did as JSON.
"""

from __future__ import annotations

import json
import sys
from abc import abstractmethod
from collections.abc import Generator
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
from simpy.events import Event

from wattkeeper.policies.arrays import Floats, Ints
from wattkeeper.policies.points.point import POINTS, DecisionPoint, register_points
from wattkeeper.policies.points.policy import Context, Policy
from wattkeeper.policies.profile import Objective
from wattkeeper.policies.registry import PolicyConfig
from wattkeeper.sim.kernel.environment import SimulationEnvironment
from wattkeeper.sim.kernel.hosting import Capabilities, Host
from wattkeeper.sim.kernel.journal import Journal
from wattkeeper.sim.kernel.spool import Spool
from wattkeeper.sim.kernel.streams import NamedStreams
from wattkeeper.sim.results.digest import digest_tables
from wattkeeper.sim.results.folder import check_folder, digest_results, to_json, write_results
from wattkeeper.sim.results.parquet import run_schema
from wattkeeper.sim.results.run_result import ResultKind, RunResult
from wattkeeper.sim.results.summary import summarise
from wattkeeper.sim.results.table_keeper import TableKeeper, encode
from wattkeeper.traces.schema import field

CLIENTS: Final = 1_000_000
ROUNDS: Final = 20
PICKED: Final = 100


class Pick(Policy):
    """Which clients take part in this round?"""

    @abstractmethod
    def pick(self, ctx: Context, spans_s: Floats) -> Ints:
        """Choose clients, given the time that each would train for, s."""


register_points(DecisionPoint("pick", Pick, "clients"))


class Anybody(Pick):
    def pick(self, ctx: Context, spans_s: Floats) -> Ints:
        return ctx.rng("clients").choice(len(spans_s), PICKED, replace=False)


class AnybodyConfig(PolicyConfig):
    """Any clients."""

    kind: Literal["anybody"] = "anybody"
    draws: ClassVar[bool] = True
    policy = Anybody


class Quickest(Pick):
    def pick(self, ctx: Context, spans_s: Floats) -> Ints:
        return np.argpartition(spans_s, PICKED)[:PICKED]


class QuickestConfig(PolicyConfig):
    """The clients that train for the shortest time."""

    kind: Literal["quickest"] = "quickest"
    policy = Quickest


class RoundsResult(RunResult):
    """What a run leaves."""

    kind: ClassVar[ResultKind] = ResultKind(
        {
            "rounds": run_schema(
                field("time_s", pa.float64(), "s", "end of the round"),
                field("span_s", pa.float64(), "s", "time of its slowest client"),
            ),
            "decisions": run_schema(
                field("time_s", pa.float64(), "s", "time of the decision"),
                field("point", pa.string(), "", "decision point"),
                field("policy", pa.string(), "", "name of the policy"),
                field("round", pa.int64(), "", "round that it is about"),
                field("saw", pa.uint64(), "", "digest of what the policy was shown"),
                field("chose", pa.string(), "", "what it chose"),
            ),
        }
    )


def simulate(config: PolicyConfig, seed: int) -> RoundsResult:
    """The engine: a round ends with its slowest client, and the next one begins."""
    env, streams = SimulationEnvironment(), NamedStreams(seed)
    journal = Journal[str](Spool())
    pick = Host(Capabilities("rounds"), env, Objective(0.5), streams, journal).engage(config)
    rng = streams.policy("rounds", "clients")
    ends: list[tuple[float, float]] = []

    def rounds() -> Generator[Event, Any, None]:
        for number in range(ROUNDS):
            spans_s = rng.standard_exponential(CLIENTS)
            picked = pick.policy.pick(pick.ctx, spans_s)
            saw, chose = (float(spans_s.sum()),), f"{len(picked)} clients from {picked.min()}"
            journal.note(env.now_s, config.point, number, 1, saw, chose)
            span_s = float(spans_s[picked].max())
            yield env.timeout(span_s)
            ends.append((env.now_s, span_s))

    env.process(rounds())
    env.run()
    return collect(config, seed, env, journal, np.array(ends))


def collect(
    config: PolicyConfig, seed: int, env: SimulationEnvironment, journal: Journal[str], ends: Floats
) -> RoundsResult:
    """Tables and metrics of a run."""
    keeper = TableKeeper(RoundsResult.kind.tables, config.kind, seed)
    keeper.keep("rounds", {"time_s": ends[:, 0], "span_s": ends[:, 1]})
    (decided,) = journal.decisions()
    points, policies = zip(*journal.makers, strict=True)
    keeper.keep(
        "decisions",
        {
            "time_s": decided["time_s"],
            "point": encode(points, decided["maker"]),
            "policy": encode(policies, decided["maker"]),
            "round": decided["subject"],
            "saw": decided["saw"],
            "chose": encode([str(choice) for choice in journal.choices], decided["chose"]),
        },
    )
    metrics = {"makespan_s": env.now_s, "round_s": float(ends[:, 1].mean())}
    digest = digest_tables(keeper.tables)
    return RoundsResult(config.kind, seed, keeper.tables, metrics, {}, env.events, digest)


def write(folder: Path) -> str:
    """Run two policies with two seeds each, and write their results; the digest of these."""
    configs = (AnybodyConfig(), QuickestConfig())
    results = [simulate(config, seed) for config in configs for seed in (1, 2)]
    names: list[str] = [config.kind for config in configs]
    etas = dict.fromkeys(names, 0.5)
    summary = to_json(summarise(results, dict.fromkeys(names, "anybody"), etas))
    digest = digest_results(results, summary)
    check_folder(folder, RoundsResult.kind)
    manifest = {"scenario": {"name": "rounds"}, "versions": {}, "results_digest": digest}
    write_results(folder, results, summary, manifest)
    return digest


def describe_section() -> dict[str, Any]:
    """What a section of scenario files says of the decision point."""
    from pydantic import ValidationError

    from wattkeeper.scenarios.spec.sections.policies import OneOf
    from wattkeeper.scenarios.spec.sections.section import Section

    class Policies(Section):
        pick: Annotated[PolicyConfig, OneOf("pick")]

    named = Policies.model_validate({"pick": "quickest"}).pick
    try:
        Policies.model_validate({"pick": "slowest"})
    except ValidationError as error:
        refused = error.errors()[0]["msg"]
    return {"named": named.kind, "refused": refused, "schema": Policies.model_json_schema()}


if __name__ == "__main__":
    digest = write(Path(sys.argv[1]))
    rooms = {name.split(".")[2] for name in sys.modules if name.startswith("wattkeeper.sim.")}
    said = {"digest": digest, "rooms": sorted(rooms), "points": list(POINTS)}
    print(json.dumps(said | describe_section()))
