"""Traces that benchmarks generate, so that they need no data."""

import zlib
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from wattkeeper.scenarios.bench.baselines import JobsTrace, ModelsTrace
from wattkeeper.scenarios.inputs.synthetic_models import graph_of
from wattkeeper.sim.search.architectures import draw_candidates
from wattkeeper.traces.fits import list_shipped, load_fit
from wattkeeper.traces.generate.sample import rate_for_load, sample
from wattkeeper.traces.schema import MODELS, TRAININGS
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

NAME: Final = "made"


def generate_trace(spec: JobsTrace | ModelsTrace, beside: Path) -> Trace:
    """Generate a trace, deterministically.

    Relative paths of fits refer to the folder `beside`.

    Raises:
        InputError: If the fit does not exist.
    """
    if isinstance(spec, ModelsTrace):
        return _generate_models(spec)
    fit = load_fit(spec.fit if spec.fit in list_shipped() else beside / spec.fit)
    scale = rate_for_load(fit, spec.load, spec.gpus)
    return sample(fit, NAME, spec.jobs, spec.seed, scale, spec.fit)


def _generate_models(spec: ModelsTrace) -> Trace:
    """The networks of the search of `zoo-digits`, submitted at regular intervals."""
    rng = np.random.default_rng([spec.seed, zlib.crc32(b"networks")])
    networks = draw_candidates(spec.models, rng)
    names = [network.name for network in networks]
    models = [
        {
            "model": network.name,
            "task": "made",
            "mutated_from": network.mutated_from,
            "accuracy": None,
            "graph": graph_of(network.architecture).to_json(),
        }
        for network in networks
    ]
    jobs = jobs_table(
        {
            "job_id": pa.array(names),
            "submit_time_s": pa.array(np.arange(len(names)) * spec.every_s),
            "duration_s": pa.nulls(len(names), pa.float64()),
            "gpus": pa.array(np.ones(len(names), np.int32)),
        }
    )
    return Trace(
        name=NAME,
        kind="jobs",
        tables={
            "jobs": jobs,
            "models": pa.Table.from_pylist(models, schema=MODELS),
            "trainings": pa.table({"job_id": names, "model": names}, schema=TRAININGS),
        },
        format="bench",
        origin="synthetic",
        source="mutations of a small convolutional network",
        licence="none needed",
        parameters=spec.model_dump(mode="json"),
    )
