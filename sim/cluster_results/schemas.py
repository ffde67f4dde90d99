"""Schemas of the result tables; `docs/results.md` is tested against them."""

from typing import Final

import pyarrow as pa

from wattkeeper.sim.cluster_results.metrics import COSTS
from wattkeeper.sim.results.parquet import KEYS
from wattkeeper.sim.results.run_result import ResultKind
from wattkeeper.traces.schema import field

COST = "eta * energy + (1 - eta) * largest power limit * time, of training without overheads"

JOBS = pa.schema(
    [
        *KEYS,
        field("job_id", pa.string(), "", "submitted training run", distinct=True),
        field("group_id", pa.string(), "", "recurring job that it belongs to", distinct=True),
        field("recurrence", pa.int32(), "", "its position in the group, from 1"),
        field("attempt", pa.int32(), "", "attempt of the job, from 1"),
        field("workload", pa.string(), "", "what is trained", null=True),
        field("gpu_type", pa.string(), "", "type of the GPUs"),
        field("gpus", pa.int32(), "", "GPUs held"),
        field("gpu_milli", pa.int32(), "", "thousandths of each of them"),
        field("node_ids", pa.list_(pa.int32()), "", "nodes that hold them"),
        field("time_scale", pa.float64(), "", "its run time over the mean of its workload"),
        field("submit_time_s", pa.float64(), "s", "submission of the job"),
        field(
            "deadline_s",
            pa.float64(),
            "s",
            "when the job should have ended",
            null=True,
            optional=True,
        ),
        field("start_time_s", pa.float64(), "s", "start of the attempt"),
        field("finish_time_s", pa.float64(), "s", "end of the attempt"),
        field("batch_size", pa.int64(), "", "global batch size; null: not known", null=True),
        field(
            "power_limit_w",
            pa.float64(),
            "W",
            "last power limit of each GPU (see retunes); null: none was set",
            null=True,
        ),
        field(
            "clock_mhz",
            pa.int32(),
            "MHz",
            "last locked clock of each GPU, at the highest limit (see retunes); if a job had one",
            optional=True,
        ),
        field("epochs", pa.int64(), "", "epochs done; 0: it never ran", null=True),
        field(
            "energy_j",
            pa.float64(),
            "J",
            "energy of the attempt, with overheads; null: not measured",
            null=True,
        ),
        field("time_s", pa.float64(), "s", "training time of the attempt"),
        field(
            "overhead_s",
            pa.float64(),
            "s",
            "held GPUs without training: waking, restoring, short of power",
        ),
        field("cost", pa.float64(), "J", COST),
        field("reached_target", pa.bool_(), "", "whether the target was reached"),
        field("early_stopped", pa.bool_(), "", "whether the cost bound ended it"),
        field("profiled", pa.bool_(), "", "whether power limits were profiled in it"),
        field("replayed", pa.string(), "", "from a profile, or for its recorded duration"),
        field("parent_model", pa.string(), "", "model whose weights it started from", null=True),
        field("preemptions", pa.int32(), "", "how often it was preempted"),
        field(
            "retunes",
            pa.int32(),
            "",
            "how often its knobs changed after its start; where Tune decides over time",
            optional=True,
        ),
        field(
            "tune_paused_s",
            pa.float64(),
            "s",
            "time for which Tune paused it; likewise",
            optional=True,
        ),
        field(
            "slices",
            pa.int32(),
            "",
            "short trainings that measured power limits and batch sizes; where Tune asks for some",
            optional=True,
        ),
        field("slice_time_s", pa.float64(), "s", "time of these, in time_s", optional=True),
        field("slice_energy_j", pa.float64(), "J", "energy of these, in energy_j", optional=True),
        field(
            "discarded_time_s",
            pa.float64(),
            "s",
            "time of slices of other batch sizes, after the target, whose weights were thrown away",
            optional=True,
        ),
        field("discarded_energy_j", pa.float64(), "J", "energy of these", optional=True),
        field(
            "lost_node",
            pa.int32(),
            "",
            "node that went down and ended the attempt; if any attempt ended so",
            null=True,
            optional=True,
        ),
        field(
            "lost_time_s",
            pa.float64(),
            "s",
            "training time since the last checkpoint, in time_s, that was lost with it",
            optional=True,
        ),
        field("lost_energy_j", pa.float64(), "J", "energy of that, in energy_j", optional=True),
        field(
            "slow_s",
            pa.float64(),
            "s",
            "time that slow nodes added to training, in overhead_s; if any did",
            optional=True,
        ),
        field(
            "electricity_cost",
            pa.float64(),
            "currency",
            "cost of its energy, times pue, in the currency of the scenario",
            optional=True,
        ),
        field("carbon_g", pa.float64(), "g", "emissions of its energy, times pue", optional=True),
    ]
)

DECISIONS = pa.schema(
    [
        *KEYS,
        field("time_s", pa.float64(), "s", "time of the decision"),
        field("point", pa.string(), "", "decision point; cap: a power cap that follows a signal"),
        field("policy", pa.string(), "", "name of the policy"),
        field("job_id", pa.string(), "", "job that it is about", distinct=True),
        field("attempt", pa.int32(), "", "attempt that it is about"),
        field("saw", pa.uint64(), "", "digest of what the policy was shown"),
        field("chose", pa.string(), "", "what it chose"),
    ]
)

TIMELINE = pa.schema(
    [
        *KEYS,
        field("time_s", pa.float64(), "s", "change point; values hold until the next one"),
        field(
            "power_w",
            pa.float64(),
            "W",
            "power of the facility: jobs and idle GPUs, times pue; null: not measured",
            null=True,
        ),
        field("gpus_busy", pa.float64(), "", "GPUs that jobs hold, parts of them as such"),
        field("jobs_waiting", pa.int64(), "", "submitted or preempted jobs that do not run"),
    ]
)

MODELS = pa.schema(
    [
        *KEYS,
        field(
            "job_id", pa.string(), "", "job that trained it, and its id in the zoo", distinct=True
        ),
        field("time_s", pa.float64(), "s", "when it was trained"),
        field("parent_model", pa.string(), "", "model whose weights it started from", null=True),
        field("coverage", pa.float64(), "", "share of its parameters that the parent filled"),
        field("saved_gpu_s", pa.float64(), "s", "GPU seconds of training that the parent saved"),
        field("accuracy", pa.float64(), "", "accuracy that it reached"),
        field("admitted", pa.bool_(), "", "whether the zoo admitted it"),
        field("zoo_models", pa.int64(), "", "models in the zoo after that"),
        field("zoo_bytes", pa.int64(), "B", "their size"),
    ]
)

NODES = pa.schema(
    [
        *KEYS,
        field("time_s", pa.float64(), "s", "time of the event"),
        field("node", pa.int32(), "", "number of the node in the cluster, from 0"),
        field(
            "event",
            pa.string(),
            "",
            "down; up: it is back; notice: it is expected to go down; degraded: it is slow, or "
            "no more; absent: not there at first",
        ),
        field("cause", pa.string(), "", "why; empty if not known"),
        field("deadline_s", pa.float64(), "s", "with a notice: when it is expected", null=True),
        field(
            "jobs",
            pa.int32(),
            "",
            "jobs that ran on it and lost it; with degraded: whose pace that changed",
        ),
        field("lost_gpu_s", pa.float64(), "s", "GPU time of training that they had not saved"),
        field("lost_energy_j", pa.float64(), "J", "energy of that"),
        field(
            "factor",
            pa.float64(),
            "",
            "with degraded: time of an iteration over that at full pace; if any node became slow",
            optional=True,
        ),
    ]
)

SHAPES = pa.schema(
    [
        *KEYS,
        field("job_id", pa.string(), "", "elastic job", distinct=True),
        field("attempt", pa.int32(), "", "its attempt: each shape is one of its own"),
        field("time_s", pa.float64(), "s", "begin of the attempt"),
        field("until_s", pa.float64(), "s", "its end"),
        field(
            "moment",
            pa.string(),
            "",
            "why the shape was chosen: start; lost: nodes; boundary: to take or give some; live, "
            "pause: connections broke",
        ),
        field("nodes", pa.int32(), "", "nodes held"),
        field("samples_per_s", pa.float64(), "1/s", "samples a second in steps; 0: no shape yet"),
        field("pause_s", pa.float64(), "s", "time in pauses"),
        field("steps_s", pa.float64(), "s", "time in steps"),
        field("write_s", pa.float64(), "s", "time in writes of checkpoints, in which none trains"),
        field("lost_s", pa.float64(), "s", "of steps_s, what was lost"),
        field(
            "samples", pa.float64(), "1", "samples committed in it: no loss of nodes undoes them"
        ),
        field("lost_samples", pa.float64(), "1", "samples of finished steps that were lost"),
        field("from_storage", pa.bool_(), "", "whether the state was read from storage"),
        field(
            "copied_bytes",
            pa.float64(),
            "B",
            "what nodes sent each other for the shape; null: not known",
            null=True,
        ),
        field(
            "redundant_s",
            pa.float64(),
            "s",
            "of steps_s, redundant computation in steps that were committed; if any shape has some",
            optional=True,
        ),
        field(
            "open_s",
            pa.float64(),
            "s",
            "of steps_s, what is neither committed nor lost when the run ends; if any shape has "
            "some",
            optional=True,
        ),
    ]
)

TABLES = {
    "jobs": JOBS,
    "decisions": DECISIONS,
    "timeline": TIMELINE,
    "models": MODELS,
    "nodes": NODES,
    "shapes": SHAPES,
}
"""Schemas by table; `models` only where there is a zoo, `nodes` only where nodes are lost, `shapes`
only where there are elastic jobs."""

CLUSTER: Final = ResultKind(TABLES, frozenset({"models", "nodes", "shapes"}), COSTS)
