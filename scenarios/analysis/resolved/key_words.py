"""Keys of scenarios in words, with their units, for axes, tables and sentences."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from wattkeeper.scenarios.spec.wording import axis_text

WORDS: Final = {
    "objective.eta": "weight of energy (eta)",
    "cluster.gpus": "GPUs of the cluster",
    "cluster.gpus_per_node": "GPUs per node",
    "cluster.gpu": "GPU type",
    "cluster.pue": "power usage effectiveness",
    "cluster.power_cap_w": "power cap of the cluster",
    "cluster.energy_of": "what energy is of",
    "cluster.idle_power_w": "power of an idle GPU",
    "cluster.busy_power_w": "power of a busy GPU",
    "cluster.sleep": "sleeping nodes",
    "cluster.sleep.after_s": "idle time before nodes sleep",
    "cluster.sleep.power_w": "power of a sleeping GPU",
    "cluster.sleep.wake_s": "time that nodes take to wake",
    "cluster.preemption.checkpoint_s": "time to save a checkpoint",
    "cluster.preemption.restore_s": "time to restore a checkpoint",
    "workload.recurrences": "recurrences",
    "workload.load": "load (times the trace's)",
    "electricity.price": "price of a kWh",
    "electricity.carbon": "emissions of a kWh (g)",
}
"""Keys that have words of their own; units are left out."""

UNITS: Final = {"_s": "s", "_j": "J", "_w": "W", "_mhz": "MHz", "_bytes": "B", "_g": "g"}
"""Ends of keys and their units."""

POLICY_PATH: Final = 4
"""Parts of `variants.NAME.policies.POINT`."""


def key_words(path: str) -> tuple[str, str]:
    """A key's path in words, and the unit of its values; empty where it has none.

    `cluster.power_cap_w` is the power cap of the cluster in W, `variants.zeus.policies.configure.
    beta` beta of configure in zeus.
    """
    parts = path.split(".")
    own = parts[-1]
    end, unit = next(((end, unit) for end, unit in UNITS.items() if own.endswith(end)), ("", ""))
    if path in WORDS:
        return WORDS[path], unit
    words = own.removesuffix(end).replace("_", " ")
    if parts[0] == "variants" and len(parts) > 2:
        inner = ".".join(parts[2:])
        if inner in WORDS:
            return f"{WORDS[inner]} in {parts[1]}", unit
        if len(parts) > POLICY_PATH and parts[2] == "policies":
            return f"{words} of {parts[3]} in {parts[1]}", unit
        return f"{words} in {parts[1]}", unit
    if len(parts) > 2 and parts[0] == "policies":
        return f"{words} of {parts[1]}", unit
    return (f"{words} ({' '.join(parts[:-1])})" if len(parts) > 1 else words), unit


def title_of_key(path: str) -> str:
    """A key's path as a title with its unit, as `power cap of the cluster, W`."""
    words, unit = key_words(path)
    return f"{words}, {unit}" if unit else words


def short_keys(paths: Iterable[str]) -> dict[str, str]:
    """The last key of each path; the whole path where others end in the same key."""
    last = {path: path.rpartition(".")[2] for path in paths}
    often = Counter(last.values())
    return {path: key if often[key] == 1 else path for path, key in last.items()}


def label_point(values: Mapping[str, object], axes: Iterable[str] | None = None) -> str:
    """Values of a point of a sweep, as `eta = 0.5, gpus = 3`.

    `axes`: paths of all axes of the sweep, where the point has only some of them.
    """
    names = short_keys(values if axes is None else axes)
    return ", ".join(f"{names[path]} = {axis_text(value)}" for path, value in values.items())


def describe_setting(path: str, value: object) -> str:
    """A key and its value in words, as `power cap of the cluster: 120,000 W`."""
    words, unit = key_words(path)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{words}: {axis_text(value)}"
    return f"{words}: {value:,.10g}" + f" {unit}" * bool(unit)
