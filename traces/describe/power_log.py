"""Report on a trace of kind ``power-log``."""

from typing import Any

import numpy as np
from rich.console import Console

from wattkeeper.traces.arrow import to_floats
from wattkeeper.traces.trace import Trace

Json = dict[str, Any]


def report(trace: Trace) -> Json:
    """GPUs, hours of known power, and quantiles of power over that time, JSON-ready."""
    table = trace.tables["power-log"]
    start_s, end_s = to_floats(table["start_s"]), to_floats(table["end_s"])
    lengths_s, power_w = end_s - start_s, to_floats(table["power_w"])
    order = np.argsort(power_w, kind="stable")
    passed = np.cumsum(lengths_s[order])
    at = np.searchsorted(passed, np.array([0.1, 0.5, 0.9]) * passed[-1])
    low_w, median_w, high_w = power_w[order][np.minimum(at, len(order) - 1)].tolist()
    gpus = {*zip(table["node"].to_pylist(), table["gpu"].to_pylist(), strict=True)}
    return {
        "nodes": len({node for node, _ in gpus}),
        "gpus": len(gpus),
        "span_s": float(end_s.max() - start_s.min()),
        "known_gpu_h": float(lengths_s.sum() / 3600),
        "energy_j": float((lengths_s * power_w).sum()),
        "mean_power_w": float((lengths_s * power_w).sum() / lengths_s.sum()),
        "power_w": {"p10": low_w, "p50": median_w, "p90": high_w},
    }


def render(report: Json, console: Console) -> None:
    """Print the report."""
    power = report["power_w"]
    for line in (
        f"{report['gpus']} GPUs on {report['nodes']} nodes over {report['span_s'] / 3600:.4g} h; "
        f"power is known over {report['known_gpu_h']:.4g} GPU hours",
        f"a GPU draws {report['mean_power_w']:.4g} W on average; for a tenth of the time at most "
        f"{power['p10']:.4g} W, for half {power['p50']:.4g} W, for nine tenths "
        f"{power['p90']:.4g} W",
    ):
        console.print(line, soft_wrap=True)
