"""The canonical tables: columns, units, and rules of valid rows.

Every field has ``unit``, ``doc`` and ``rule`` in its metadata, and ``optional`` if stored tables
may lack it; every schema has its ``table`` name and the ``key`` columns that together are unique.
Parquet files keep this metadata. One module, so that the columns of all tables stand side by side.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa

ALLOWED: Final[Mapping[str, str]] = {
    "": "any value",
    "not empty": "a text that is not empty",
    "finite": "a finite number, at most 1e15 in size",
    "> 0": "a finite number > 0, at most 1e15",
    ">= 0": "a finite number >= 0, at most 1e15",
    ">= 1": "a finite number >= 1, at most 1e15",
    "1 to 1000": "a whole number from 1 to 1000",
    "0 to 1": "a number above 0, at most 1",
}
"""Description of the values that each rule of a field allows."""


LARGEST: Final = 1e15
"""Largest absolute value: sums and products of seconds, watts and epochs stay finite."""


def field(
    name: str,
    dtype: pa.DataType,
    unit: str,
    doc: str,
    rule: str = "",
    *,
    null: bool = False,
    optional: bool = False,
    key: bool = False,
    distinct: bool = False,
) -> pa.Field:
    """Define a field with its unit, meaning and rule.

    `unit` is an SI unit, or empty where there is none; `rule` is one of `ALLOWED`; with `null`, a
    value may be missing; with `optional`, the whole column, which is null then; with `key`, it
    belongs to the key of the table, as an optional column that the schema does not name there;
    with `distinct`, most values are, and results are stored without an index of them.
    """
    meta = {"unit": unit, "doc": doc, "rule": rule} | ({"optional": "yes"} if optional else {})
    meta |= {"key": "yes"} if key else {}
    meta |= {"distinct": "yes"} if distinct else {}
    return pa.field(name, dtype, nullable=null or optional, metadata=meta)


def is_optional(want: pa.Field) -> bool:
    """Whether a table may lack a column."""
    return b"optional" in want.metadata


def table_schema(table: str, key: Sequence[str], fields: Sequence[pa.Field]) -> pa.Schema:
    """Define a schema with its table name and unique key (no key: rows may repeat)."""
    return pa.schema(fields, metadata={"table": table, "key": ",".join(key)})


_text, _real, _whole = pa.string(), pa.float64(), pa.int32()

JOBS: Final = table_schema(
    "jobs",
    ["job_id"],
    [
        field("job_id", _text, "", "one submitted training run", "not empty"),
        field("group_id", _text, "", "ties the recurrences of one job", "not empty", null=True),
        field("user", _text, "", "who submitted it", "not empty", null=True),
        field("queue", _text, "", "partition or virtual cluster", "not empty", null=True),
        field("submit_time_s", _real, "s", "since the start of the trace", ">= 0"),
        field("duration_s", _real, "s", "recorded run time", ">= 0", null=True),
        field(
            "estimate_s",
            _real,
            "s",
            "run time that its user expected or asked for",
            "> 0",
            null=True,
        ),
        field("gpus", _whole, "", "GPUs that the job asks for, all at once", "> 0"),
        field("gpu_milli", _whole, "", "thousandths of each of these GPUs", "1 to 1000"),
        field(
            "gpu_type",
            _text,
            "",
            "types that it may run on, with | between",
            "not empty",
            null=True,
        ),
        field("workload", _text, "", "what is trained", "not empty", null=True),
        field("time_scale", _real, "", "run time over the workload's mean; 1 as profiled", "> 0"),
        field(
            "status", _text, "", "how it ended, in the words of the source", "not empty", null=True
        ),
        field(
            "start_time_s",
            _real,
            "s",
            "recorded start of the try that counts",
            ">= 0",
            optional=True,
        ),
        field("tries", _whole, "", "recorded tries, requeues included", "> 0", optional=True),
        field(
            "energy_j", _real, "J", "measured energy of the try that counts", "> 0", optional=True
        ),
        field(
            "measured_share",
            _real,
            "",
            "share of its GPU time that samples of power cover; their mean stands for the rest",
            "0 to 1",
            optional=True,
        ),
        field(
            "deadline_s",
            _real,
            "s",
            "when it should have ended, since the start of the trace",
            ">= 0",
            optional=True,
        ),
        field("account", _text, "", "who pays for it", "not empty", optional=True),
        field(
            "qos",
            _text,
            "",
            "quality of service that it was submitted with",
            "not empty",
            optional=True,
        ),
        field(
            "serves",
            _whole,
            "",
            "1: it serves until the log ends, and its wait does not count",
            "> 0",
            optional=True,
        ),
    ],
)

TIMES: Final = ("submit_time_s", "start_time_s", "deadline_s")
"""Points in time among the columns of `JOBS`; they count from the first submission."""

NODES: Final = table_schema(
    "nodes",
    ["node_id"],
    [
        field("node_id", _text, "", "one host", "not empty"),
        field("gpu_type", _text, "", "model of its GPUs", "not empty"),
        field("gpus", _whole, "", "GPUs on it", "> 0"),
    ],
)

MODELS: Final = table_schema(
    "models",
    ["model"],
    [
        field("model", _text, "", "name of an architecture", "not empty"),
        field(
            "task",
            _text,
            "",
            "task and data set: accuracies of one task can be compared",
            "not empty",
        ),
        field(
            "mutated_from", _text, "", "the model that it is a mutation of", "not empty", null=True
        ),
        field(
            "accuracy",
            _real,
            "",
            "what it reaches from scratch; larger is better",
            "finite",
            null=True,
        ),
        field("graph", _text, "", "its operators and their tensors, as JSON", "not empty"),
    ],
)

TRAININGS: Final = table_schema(
    "trainings",
    ["job_id"],
    [
        field("job_id", _text, "", "one submitted training run", "not empty"),
        field("model", _text, "", "the model that it trains", "not empty"),
    ],
)

PROFILES: Final = table_schema(
    "profiles",
    ["workload", "gpu_type", "gpus", "batch_size", "power_limit_w"],
    [
        field("workload", _text, "", "what is trained", "not empty"),
        field("gpu_type", _text, "", "model of the GPU", "not empty"),
        field("gpus", _whole, "", "GPUs that it was recorded on", "> 0"),
        field("batch_size", _whole, "samples", "global batch size", "> 0"),
        field(
            "power_limit_w",
            _real,
            "W",
            "power limit of each GPU; null: it takes none",
            "> 0",
            null=True,
        ),
        field("time_per_epoch_s", _real, "s", "duration of an epoch", "> 0"),
        field(
            "average_power_w",
            _real,
            "W",
            "mean power of all GPUs of the job together; null: nothing measured it",
            "> 0",
            null=True,
        ),
        field(
            "clock_mhz",
            _whole,
            "MHz",
            "locked clock of each GPU, at its highest limit; null: free",
            "> 0",
            optional=True,
            key=True,
        ),
        field(
            "energy_of",
            _text,
            "",
            "what the power is of: gpu, node (at the plug) or facility; null: gpu",
            "not empty",
            optional=True,
        ),
        field("nodes", _whole, "", "nodes that it was recorded on", "> 0", optional=True),
    ],
)

CONVERGENCE: Final = table_schema(
    "convergence",
    ["workload", "batch_size", "run", "target"],
    [
        field("workload", _text, "", "what is trained", "not empty"),
        field("batch_size", _whole, "samples", "global batch size", "> 0"),
        field("run", _whole, "", "number of the training run", ">= 0"),
        field("target", _real, "", "value of the metric to reach", "finite"),
        field(
            "epochs", _whole, "epochs", "until the target; null: never reached", "> 0", null=True
        ),
        field(
            "gpu_type",
            _text,
            "",
            "model of the GPU that it ran on; null: it counts for all",
            "not empty",
            optional=True,
            key=True,
        ),
        field("gpus", _whole, "", "GPUs that it ran on", "> 0", optional=True, key=True),
        field("seed", _text, "", "random seed of the run", "not empty", optional=True),
        field(
            "time_ratio",
            _real,
            "",
            "time of an epoch of the run over the mean of its batch size",
            "> 0",
            optional=True,
        ),
        field("energy_ratio", _real, "", "the same of its energy", "> 0", optional=True),
    ],
)

CURVES: Final = table_schema(
    "curves",
    ["workload", "gpu_type", "gpus", "batch_size", "run", "epoch", "metric"],
    [
        field("workload", _text, "", "what is trained", "not empty"),
        field("gpu_type", _text, "", "model of the GPU", "not empty"),
        field("gpus", _whole, "", "GPUs that it ran on", "> 0"),
        field("batch_size", _whole, "samples", "global batch size", "> 0"),
        field("run", _whole, "", "number of the training run", ">= 0"),
        field("epoch", _whole, "epochs", "after which it was evaluated", "> 0"),
        field("metric", _text, "", "name of the metric", "not empty"),
        field("value", _real, "", "value of the metric", "finite"),
        field("time_s", _real, "s", "since the start of the run", ">= 0", null=True),
    ],
)

WORKLOADS: Final = table_schema(
    "workloads",
    ["workload"],
    [
        field("workload", _text, "", "what is trained", "not empty"),
        field("dataset", _text, "", "name of the data set", "not empty"),
        field("network", _text, "", "name of the model", "not empty"),
        field("optimizer", _text, "", "name of the optimizer", "not empty"),
        field("target", _real, "", "value of the metric that ends a run", "finite"),
        field("higher_is_better", pa.bool_(), "", "whether the metric rises as training proceeds"),
        field("max_epochs", _whole, "epochs", "a run is given up after so many", "> 0"),
        field("default_batch_size", _whole, "samples", "used if nobody chooses", "> 0"),
        field(
            "samples_per_epoch",
            _whole,
            "samples",
            "of the training set; null: not known",
            "> 0",
            optional=True,
        ),
        field("metric", _text, "", "name of the metric", "not empty", optional=True),
    ],
)

NODE_EVENTS: Final = table_schema(
    "node-events",
    ["time_s", "node", "event"],
    [
        field("time_s", _real, "s", "since the start of the trace", ">= 0"),
        field("event", _text, "", "down, up, notice or degraded", "not empty"),
        field("node", _text, "", "name of the node", "not empty"),
        field("cause", _text, "", "why", "not empty", optional=True),
        field(
            "deadline_s",
            _real,
            "s",
            "with a notice: when the node is expected to go down",
            ">= 0",
            optional=True,
        ),
        field("rack", _text, "", "name of the node's rack", "not empty", optional=True),
        field(
            "repair_s",
            _real,
            "s",
            "with down or degraded: time until it is up, or at full pace, again",
            "> 0",
            optional=True,
        ),
        field(
            "factor",
            _real,
            "",
            "with degraded: time of an iteration over that at full pace",
            ">= 1",
            optional=True,
        ),
    ],
)

NETWORKS: Final = table_schema(
    "networks",
    ["task", "network"],
    [
        field("task", _text, "", "task and data set", "not empty"),
        field("network", _text, "", "name of an architecture", "not empty"),
        field(
            "choices",
            _text,
            "",
            "its choice for each name of the space, in order, with commas between",
            "not empty",
        ),
        field("parameters", _real, "", "number of trained elements", "> 0"),
        field(
            "graph",
            _text,
            "",
            "its operators and their tensors, as JSON; null: its choices tell",
            "not empty",
            optional=True,
        ),
        field("latency_s", _real, "s", "of an inference", "> 0", optional=True),
    ],
)

RECORDINGS: Final = table_schema(
    "recordings",
    ["task", "network", "parent", "seed"],
    [
        field("task", _text, "", "task and data set", "not empty"),
        field("network", _text, "", "what was trained", "not empty"),
        field(
            "parent",
            _text,
            "",
            "the network, trained from scratch, whose weights it began with; null: from scratch",
            "not empty",
            null=True,
        ),
        field("seed", _whole, "", "seed of the training, and of its parent's", ">= 0"),
        field("epochs", _whole, "epochs", "until the training ended", "> 0"),
        field("time_s", _real, "s", "duration of the training", "> 0"),
        field("accuracy", _real, "", "on the validation set, of the best epoch", ">= 0"),
        field("test_accuracy", _real, "", "on the test set, of that epoch", ">= 0", optional=True),
        field(
            "curve",
            _text,
            "",
            "correct validation samples after each epoch, those of the initial weights first, with "
            "spaces between; null: only the end was recorded",
            "not empty",
            optional=True,
        ),
    ],
)

POWER_LOG: Final = table_schema(
    "power-log",
    ["node", "gpu", "start_s"],
    [
        field("node", _text, "", "host of the GPU", "not empty"),
        field("gpu", _text, "", "index or UUID of the GPU on it", "not empty"),
        field("start_s", _real, "s", "since 1970, on the clock of the log", "finite"),
        field("end_s", _real, "s", "the same", "finite"),
        field("power_w", _real, "W", "mean power of the GPU from start to end", ">= 0"),
    ],
)

KINDS: Final[Mapping[str, dict[str, pa.Schema]]] = {
    "jobs": {"jobs": JOBS},
    "profiles": {"profiles": PROFILES, "convergence": CONVERGENCE, "workloads": WORKLOADS},
    "node-events": {"node-events": NODE_EVENTS},
    "networks": {"networks": NETWORKS, "recordings": RECORDINGS},
    "power-log": {"power-log": POWER_LOG},
}
"""Required tables of each kind of trace."""

OPTIONAL: Final[Mapping[str, dict[str, pa.Schema]]] = {
    "jobs": {"nodes": NODES, "models": MODELS, "trainings": TRAININGS},
    "profiles": {"curves": CURVES},
    "node-events": {},
    "networks": {},
    "power-log": {},
}
"""Optional tables of each kind of trace."""
