"""The metrics of a run: their units and meanings, and how results show them."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple


class Metric(NamedTuple):
    """A metric's unit and meaning, and how results show it.

    Attributes:
        unit: Its SI unit.
        doc: What it is.
        label: Head of its column; empty where no table of variants has it.
        noun: Its name in sentences; empty where no sentence compares variants in it.
        words: What a ratio below and above 1 is called.
        better: Which ratios are better; empty where none is.
        style: How values are written, other than in a unit of their size.
    """

    unit: str
    doc: str
    label: str = ""
    noun: str = ""
    words: tuple[str, str] = ("less", "more")
    better: Literal["", "less", "more"] = ""
    style: Literal["", "kWh", "count", "share", "accuracy", "rate", "thousand"] = ""


METRICS: dict[str, Metric] = {
    "jobs": Metric("1", "jobs that ended"),
    "attempts": Metric("1", "attempts, including those that never ran"),
    "gave_up": Metric("1", "jobs whose every attempt failed"),
    "energy_j": Metric("J", "energy of all attempts", label="energy", noun="energy", better="less"),
    "time_s": Metric(
        "s", "training time of all attempts", label="time", noun="training time", better="less"
    ),
    "cost": Metric(
        "J",
        "eta * energy + (1 - eta) * largest power limit * time of training, without overheads, of "
        "all attempts",
        label="cost",
        noun="cost",
        words=("lower", "higher"),
        better="less",
    ),
    "regret": Metric(
        "J",
        "cost of the profiled jobs of the run less the least expected cost of each, in the best "
        "configuration of its profile",
        label="regret",
    ),
    "last5_energy_j": Metric(
        "J",
        "energy of a job, mean over the last five of each group",
        label="energy after learning",
        noun="energy after learning",
        better="less",
    ),
    "last5_time_s": Metric(
        "s",
        "training time of a job, mean over the last five of each group",
        label="time after learning",
        noun="time after learning",
        better="less",
    ),
    "last5_cost": Metric("J", "cost of a job, mean over the last five of each group"),
    "energy_to_accuracy_j": Metric("J", "energy of a job that reached its target, with retries"),
    "time_to_accuracy_s": Metric("s", "training time of a job that reached its target"),
    "jct_s": Metric(
        "s",
        "job completion time: from submission to end, mean",
        label="job completion",
        noun="job completion time",
        words=("shorter", "longer"),
        better="less",
    ),
    "p95_jct_s": Metric(
        "s",
        "job completion time that 95 % of jobs stay below",
        label="95th percentile",
        better="less",
    ),
    "preemptions": Metric(
        "1", "how often jobs lost their GPUs", label="preemptions", style="count"
    ),
    "queue_delay_s": Metric(
        "s",
        "wait for GPUs: before the start and while preempted, mean",
        label="queue delay",
        noun="queue delay",
        words=("shorter", "longer"),
        better="less",
    ),
    "makespan_s": Metric("s", "from the first submission to the last end", label="makespan"),
    "gpu_utilisation": Metric("1", "share of the GPU time of the window that jobs hold"),
    "cluster_energy_j": Metric(
        "J",
        "energy of the facility in the window: the four parts below together",
        label="cluster energy",
        noun="cluster energy",
        better="less",
        style="kWh",
    ),
    "training_energy_j": Metric(
        "J", "of GPUs while jobs train on them, times pue", label="training", style="kWh"
    ),
    "held_energy_j": Metric(
        "J",
        "of GPUs that jobs hold without training, times pue",
        label="held without training",
        style="kWh",
    ),
    "idle_energy_j": Metric(
        "J", "of free GPUs that are awake, times pue", label="idle", style="kWh"
    ),
    "asleep_energy_j": Metric(
        "J", "of GPUs of nodes that sleep, times pue", label="asleep", style="kWh"
    ),
    "electricity_cost": Metric(
        "currency",
        "with `electricity.price`: cost of the cluster's energy, in its currency",
        label="electricity",
        noun="cost of electricity",
        words=("lower", "higher"),
        better="less",
    ),
    "carbon_g": Metric(
        "g",
        "with `electricity.carbon`: emissions of the cluster's energy",
        label="emissions",
        noun="emissions",
        words=("lower", "higher"),
        better="less",
    ),
    "year_span_s": Metric(
        "s",
        "where jobs are submitted at given times, over at least seven days: from the first "
        "submission, or the stated begin, to the last, and one mean time between two; or to the "
        "stated end",
    ),
    "year_energy_j": Metric(
        "J",
        "with `year_span_s`: energy of the facility in 365 days in which jobs are submitted as in "
        "that time",
    ),
    "year_electricity_cost": Metric(
        "currency", "with `year_span_s` and `electricity.price`: what that costs"
    ),
    "year_carbon_g": Metric("g", "with `year_span_s` and `electricity.carbon`: what that emits"),
    "node_losses": Metric("1", "with losses of nodes: how often a node went down"),
    "ready_node_losses": Metric(
        "1", "with losses of nodes: how often one went down that did not boot"
    ),
    "lost_attempts": Metric("1", "with losses of nodes: attempts that ended with one"),
    "unable_jobs": Metric(
        "1",
        "with losses of nodes or elastic jobs: jobs that never ended, for want of nodes that "
        "stayed up; elastic jobs that wait for nodes at `until_s`, too",
    ),
    "lost_gpu_s": Metric("s", "with losses of nodes: GPU time of training that was not saved"),
    "lost_energy_j": Metric("J", "with losses of nodes: energy of that"),
    "slow_gpu_s": Metric("s", "with losses of nodes: GPU time that slow nodes added to training"),
    "nodes_up": Metric("1", "with losses of nodes: share of the time of the window, mean"),
    "useful_samples": Metric("1", "with elastic jobs: samples that were committed"),
    "goodput": Metric(
        "1/s",
        "with elastic jobs: samples that a job committed a second, from its first pause to its "
        "end; sum over jobs",
        label="goodput",
        noun="goodput",
        better="more",
        style="rate",
    ),
    "ettr": Metric(
        "1",
        "with elastic jobs: effective training time ratio, the share of the time of a job, from "
        "its first pause to its end, in steps that were committed; mean over jobs",
        label="ETTR",
        style="share",
    ),
    "lost_share": Metric("1", "with elastic jobs: likewise, in steps that were lost"),
    "open_share": Metric(
        "1",
        "with elastic jobs: likewise, in steps that are neither committed nor lost at its end; "
        "where there are any",
    ),
    "pause_share": Metric("1", "with elastic jobs: likewise, in pauses"),
    "checkpoint_share": Metric("1", "with elastic jobs: likewise, in writes of checkpoints"),
    "stopped_share": Metric("1", "with elastic jobs: likewise, without enough nodes"),
    "downtime_s": Metric(
        "s", "with elastic jobs: time from a loss until training goes on, median of all losses"
    ),
    "p99_downtime_s": Metric(
        "s", "with elastic jobs: what 99 % of these stay below", label="p99 downtime"
    ),
    "elastic_energy_j": Metric(
        "J",
        "with elastic jobs: energy of their nodes, from the first pause of a job to its end: the "
        "parts below together",
    ),
    "elastic_useful_j": Metric(
        "J", "with elastic jobs: of steps that were committed, without redundant computation"
    ),
    "elastic_redundant_j": Metric(
        "J", "with redundant shapes (`replan: bamboo`): of redundant computation in these steps"
    ),
    "elastic_lost_j": Metric("J", "with elastic jobs: of steps that were lost"),
    "elastic_open_j": Metric(
        "J", "with elastic jobs: of steps that are neither committed nor lost, where there are any"
    ),
    "elastic_pause_j": Metric("J", "with elastic jobs: of pauses"),
    "elastic_checkpoint_j": Metric("J", "with elastic jobs: of writes of checkpoints"),
    "elastic_waiting_j": Metric(
        "J", "with elastic jobs: of nodes that are too few to train on, that boot, or are free"
    ),
    "useful_sample_j": Metric(
        "J",
        "with elastic jobs: energy of their nodes, a committed sample",
        label="energy/sample",
        noun="energy of a committed sample",
        better="less",
    ),
    "elastic_rent": Metric(
        "currency", "with `cluster.rent`: rent of the same nodes, in its currency"
    ),
    "lost_rent": Metric("currency", "with `cluster.rent`: of that, of steps that were lost"),
    "redundant_rent": Metric(
        "currency",
        "with `cluster.rent` and redundant shapes: of that, of redundant computation in other "
        "steps",
    ),
    "useful_sample_rent": Metric(
        "currency",
        "with `cluster.rent`: rent of a committed sample",
        label="rent/1,000",
        noun="rent of 1,000 samples",
        better="less",
        style="thousand",
    ),
    "on_demand_rent": Metric(
        "currency",
        "with `cluster.rent.on_demand`: what the same samples cost on nodes that are never lost",
    ),
    "late_jobs": Metric("1", "with deadlines: jobs that ended after theirs"),
    "gpu_s_saved": Metric(
        "s",
        "with a zoo: GPU seconds of training that parents saved, queries not subtracted",
        label="GPU time saved",
        noun="GPU time saved",
        better="more",
    ),
    "with_parent": Metric(
        "1",
        "with a zoo: share of the trained models that had a parent",
        label="with parent",
        style="share",
    ),
    "mean_accuracy": Metric(
        "1", "with a zoo: accuracy of the trained models, mean", label="accuracy", style="accuracy"
    ),
    "zoo_bytes": Metric("B", "with a zoo: size of its models at the end"),
}


COSTS: Final = frozenset({"cost", "regret", "last5_cost"})
"""Metrics that are comparable only under the same eta."""
