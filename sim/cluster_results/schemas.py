"""Schemas of the result tables; `docs/results.md` is tested against them."""

from typing import Final

import pyarrow as pa

from wattkeeper.sim.cluster_results.registry import COSTS
from wattkeeper.sim.results.parquet import run_schema
from wattkeeper.sim.results.run_result import ResultKind
from wattkeeper.traces.schema import field

TEXT, REAL, INT, LONG, BOOL = pa.string(), pa.float64(), pa.int32(), pa.int64(), pa.bool_()
"""Types of columns."""

COST = "eta * energy + (1 - eta) * largest power limit * time, of training without overheads"

JOBS = run_schema(
    field("job_id", TEXT, "", "submitted training run", distinct=True),
    field("group_id", TEXT, "", "recurring job that it belongs to", distinct=True),
    field("recurrence", INT, "", "its position in the group, from 1"),
    field("attempt", INT, "", "attempt of the job, from 1"),
    field("workload", TEXT, "", "what is trained", null=True),
    field("gpu_type", TEXT, "", "type of the GPUs"),
    field("gpus", INT, "", "GPUs held"),
    field("gpu_milli", INT, "", "thousandths of each of them"),
    field("node_ids", pa.list_(INT), "", "nodes that hold them"),
    field("time_scale", REAL, "", "its run time over the mean of its workload"),
    field("submit_time_s", REAL, "s", "submission of the job"),
    field("deadline_s", REAL, "s", "when the job should have ended", null=True, optional=True),
    field("start_time_s", REAL, "s", "start of the attempt"),
    field("finish_time_s", REAL, "s", "end of the attempt"),
    field("batch_size", LONG, "", "global batch size; null: not known", null=True),
    field(
        "power_limit_w",
        REAL,
        "W",
        "last power limit of each GPU (see retunes); null: none was set",
        null=True,
    ),
    field(
        "clock_mhz",
        INT,
        "MHz",
        "last locked clock of each GPU, at the highest limit (see retunes); if a job had one",
        optional=True,
    ),
    field("epochs", LONG, "", "epochs done; 0: it never ran", null=True),
    field(
        "energy_j",
        REAL,
        "J",
        "energy of the attempt, with overheads; null: not measured",
        null=True,
    ),
    field("time_s", REAL, "s", "training time of the attempt"),
    field("overhead_s", REAL, "s", "held GPUs without training: waking, restoring, short of power"),
    field("cost", REAL, "J", COST),
    field("reached_target", BOOL, "", "whether the target was reached"),
    field("early_stopped", BOOL, "", "whether the cost bound ended it"),
    field("profiled", BOOL, "", "whether power limits were profiled in it"),
    field("replayed", TEXT, "", "from a profile, or for its recorded duration"),
    field("parent_model", TEXT, "", "model whose weights it started from", null=True),
    field("preemptions", INT, "", "how often it was preempted"),
    field(
        "retunes",
        INT,
        "",
        "how often its knobs changed after its start; where Tune decides over time",
        optional=True,
    ),
    field("tune_paused_s", REAL, "s", "time for which Tune paused it; likewise", optional=True),
    field(
        "slices",
        INT,
        "",
        "short trainings that measured power limits and batch sizes; where Tune asks for some",
        optional=True,
    ),
    field("slice_time_s", REAL, "s", "time of these, in time_s", optional=True),
    field("slice_energy_j", REAL, "J", "energy of these, in energy_j", optional=True),
    field(
        "discarded_time_s",
        REAL,
        "s",
        "time of slices of other batch sizes, after the target, whose weights were thrown away",
        optional=True,
    ),
    field("discarded_energy_j", REAL, "J", "energy of these", optional=True),
    field(
        "trial_epochs",
        LONG,
        "",
        "of its epochs, those of parents that were tried and lost; if parents were tried",
        optional=True,
    ),
    field("trial_time_s", REAL, "s", "time of these, in time_s", optional=True),
    field(
        "trial_energy_j",
        REAL,
        "J",
        "energy of these, in energy_j; null: not measured",
        null=True,
        optional=True,
    ),
    field(
        "lost_node",
        INT,
        "",
        "node that went down and ended the attempt; if any attempt ended so",
        null=True,
        optional=True,
    ),
    field(
        "lost_time_s",
        REAL,
        "s",
        "training time since the last checkpoint, in time_s, that was lost with it",
        optional=True,
    ),
    field("lost_energy_j", REAL, "J", "energy of that, in energy_j", optional=True),
    field(
        "slow_s",
        REAL,
        "s",
        "time that slow nodes added to training, in overhead_s; if any did",
        optional=True,
    ),
    field(
        "electricity_cost",
        REAL,
        "currency",
        "cost of its energy, times pue, in the currency of the scenario",
        optional=True,
    ),
    field("carbon_g", REAL, "g", "emissions of its energy, times pue", optional=True),
)

DECISIONS = run_schema(
    field("time_s", REAL, "s", "time of the decision"),
    field("point", TEXT, "", "decision point; cap: a power cap that follows a signal"),
    field("policy", TEXT, "", "name of the policy"),
    field("job_id", TEXT, "", "job that it is about", distinct=True),
    field("attempt", INT, "", "attempt that it is about"),
    field("saw", pa.uint64(), "", "digest of what the policy was shown"),
    field("chose", TEXT, "", "what it chose"),
)

TIMELINE = run_schema(
    field("time_s", REAL, "s", "change point; values hold until the next one"),
    field(
        "power_w",
        REAL,
        "W",
        "power of the facility: jobs and idle GPUs, times pue; null: not measured",
        null=True,
    ),
    field("gpus_busy", REAL, "", "GPUs that jobs hold, parts of them as such"),
    field("jobs_waiting", LONG, "", "submitted or preempted jobs that do not run"),
)

MODELS = run_schema(
    field("job_id", TEXT, "", "job that trained it, and its id in the zoo", distinct=True),
    field("time_s", REAL, "s", "when it was trained"),
    field("parent_model", TEXT, "", "model whose weights it started from", null=True),
    field("coverage", REAL, "", "share of its parameters that the parent filled"),
    field("saved_gpu_s", REAL, "s", "GPU seconds of training that the parent saved"),
    field("accuracy", REAL, "", "accuracy that it reached"),
    field("admitted", BOOL, "", "whether the zoo admitted it"),
    field("zoo_models", LONG, "", "models in the zoo after that"),
    field("zoo_bytes", LONG, "B", "their size"),
)

NODES = run_schema(
    field("time_s", REAL, "s", "time of the event"),
    field("node", INT, "", "number of the node in the cluster, from 0"),
    field(
        "event",
        TEXT,
        "",
        "down; up: it is back; notice: it is expected to go down; degraded: it is slow, or "
        "no more; absent: not there at first",
    ),
    field("cause", TEXT, "", "why; empty if not known"),
    field("deadline_s", REAL, "s", "with a notice: when it is expected", null=True),
    field(
        "jobs", INT, "", "jobs that ran on it and lost it; with degraded: whose pace that changed"
    ),
    field("lost_gpu_s", REAL, "s", "GPU time of training that they had not saved"),
    field("lost_energy_j", REAL, "J", "energy of that"),
    field(
        "factor",
        REAL,
        "",
        "with degraded: time of an iteration over that at full pace; if any node became slow",
        optional=True,
    ),
)

SHAPES = run_schema(
    field("job_id", TEXT, "", "elastic job", distinct=True),
    field("attempt", INT, "", "its attempt: each shape is one of its own"),
    field("time_s", REAL, "s", "begin of the attempt"),
    field("until_s", REAL, "s", "its end"),
    field(
        "moment",
        TEXT,
        "",
        "why the shape was chosen: start; lost: nodes; boundary: to take or give some; live, "
        "pause: connections broke",
    ),
    field("nodes", INT, "", "nodes held"),
    field("samples_per_s", REAL, "1/s", "samples a second in steps; 0: no shape yet"),
    field("pause_s", REAL, "s", "time in pauses"),
    field("steps_s", REAL, "s", "time in steps"),
    field("write_s", REAL, "s", "time in writes of checkpoints, in which none trains"),
    field("lost_s", REAL, "s", "of steps_s, what was lost"),
    field("samples", REAL, "1", "samples committed in it: no loss of nodes undoes them"),
    field("lost_samples", REAL, "1", "samples of finished steps that were lost"),
    field("from_storage", BOOL, "", "whether the state was read from storage"),
    field(
        "copied_bytes",
        REAL,
        "B",
        "what nodes sent each other for the shape; null: not known",
        null=True,
    ),
    field(
        "redundant_s",
        REAL,
        "s",
        "of steps_s, redundant computation in steps that were committed; if any shape has some",
        optional=True,
    ),
    field(
        "open_s",
        REAL,
        "s",
        "of steps_s, what is neither committed nor lost when the run ends; if any shape has some",
        optional=True,
    ),
)

USAGE = run_schema(
    field(
        "name",
        TEXT,
        "",
        "user, else account or queue, of jobs; -: they name none; null: nobody held GPUs",
        null=True,
    ),
    field("jobs", LONG, "", "jobs that ran"),
    field("gpu_s", REAL, "s", "GPU time that they held"),
    field("energy_j", REAL, "J", "energy of their GPUs, times pue"),
    field("idle_energy_j", REAL, "J", "their share of that of free GPUs, times pue"),
    field("electricity_cost", REAL, "currency", "cost of energy_j", optional=True),
    field("idle_electricity_cost", REAL, "currency", "cost of idle_energy_j", optional=True),
    field("carbon_g", REAL, "g", "emissions of energy_j", optional=True),
    field("idle_carbon_g", REAL, "g", "emissions of idle_energy_j", optional=True),
)

TABLES = {
    "jobs": JOBS,
    "decisions": DECISIONS,
    "timeline": TIMELINE,
    "models": MODELS,
    "nodes": NODES,
    "shapes": SHAPES,
    "usage": USAGE,
}
"""Schemas by table; `models` only where there is a zoo, `nodes` only where nodes are lost, `shapes`
only where there are elastic jobs, `usage` only where jobs of a trace name users, accounts or
queues."""

CLUSTER: Final = ResultKind(TABLES, frozenset({"models", "nodes", "shapes", "usage"}), COSTS)
