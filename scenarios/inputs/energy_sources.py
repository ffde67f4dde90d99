"""What the energy of a cluster rests on: meters, profiles, models of power, and stated factors."""

from collections.abc import Sequence
from typing import Final, TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wattkeeper.policies.arrays import Bools, Floats
from wattkeeper.scenarios.inputs.measured_power import is_measured
from wattkeeper.sim.cluster.cluster_spec import ClusterSpec
from wattkeeper.sim.results.run_result import RunResult

SOURCES: Final = {
    "measured": "measured (energy of jobs in the log)",
    "profiles": "from profiles",
    "modelled": "modelled (power of jobs without measurement or profile, and of idle GPUs)",
    "stated": "stated or assumed",
}
"""The sources of energy, and their labels."""


class EnergySources(TypedDict):
    """Shares of the energy of the cluster under the baseline, by source (`SOURCES`), of 1."""

    baseline: str
    shares: dict[str, float]


def share_sources(
    jobs: pa.Table, cluster: ClusterSpec, results: Sequence[RunResult]
) -> EnergySources | None:
    """What the energy of the cluster rests on in the runs of a variant; None if it is not known.

    Energy in the window of a run is divided among jobs as that of their whole runs.
    """
    meters = jobs.filter(pa.array(is_measured(jobs)))["job_id"].combine_chunks()
    shares = dict.fromkeys(SOURCES, 0.0)
    for result in results:
        table, metrics, pue = result.tables["jobs"], result.metrics, cluster.pue
        energy: Floats = np.asarray(table["energy_j"].cast(pa.float64()).fill_null(np.nan))
        profiles: Bools = np.asarray(pc.equal(table["replayed"], "profile"))
        measured: Bools = np.zeros(len(table), dtype=np.bool_)
        if len(meters):
            measured = np.asarray(pc.is_in(table["job_id"], value_set=meters)) & ~profiles
        held_j = metrics["training_energy_j"] + metrics["held_energy_j"]
        by_job = held_j / pue / energy.sum() if held_j else 0.0
        shares["measured"] += float(energy[measured].sum() * by_job)
        shares["profiles"] += float(energy[profiles].sum() * by_job)
        shares["modelled"] += float(energy[~measured & ~profiles].sum() * by_job)
        shares["modelled"] += metrics["idle_energy_j"] / pue
        shares["stated"] += metrics["asleep_energy_j"] / pue
        shares["stated"] += metrics["cluster_energy_j"] * (1 - 1 / pue)
    total = sum(shares.values())
    if not total > 0:
        return None
    shares = {source: value / total for source, value in shares.items()}
    return {"baseline": results[0].variant, "shares": shares}


def describe_sources(sources: EnergySources, *, has_pue: bool, sleeps: bool) -> str:
    """The shares in words, the sources without energy left out.

    Args:
        sources: The shares.
        has_pue: Whether the power usage effectiveness of the cluster is not 1.
        sleeps: Whether its nodes sleep.
    """
    stated = ["power usage effectiveness"] * has_pue + ["sleeping GPUs"] * sleeps
    labels = SOURCES | {"stated": f"{SOURCES['stated']} ({', '.join(stated)})"}
    shares = sources["shares"].items()
    return ", ".join(f"{100 * share:.3g} % {labels[name]}" for name, share in shares if share)
