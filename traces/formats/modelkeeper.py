"""Arrivals of models: ModelKeeper's workloads (NSDI '23), and any list of this form.

A CSV file with the columns ``name`` and ``arrival`` (s), and a folder of graphs (JSON, see
`wattkeeper.traces.models.graphs`), or several. Optional columns: ``task`` (task and data set; by
default the file's name), ``accuracy`` (from scratch), ``mutated_from`` (a name), ``duration`` (s
from scratch), ``gpus`` (1). A name has its graph by letters and digits alone, so that the call
``VGG(vgg_block=13, use_bn=True)`` finds ``VGG_vgg_block_13_use_bn_True``. A name that arrives
again is another job that trains the same model.
"""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from wattkeeper.policies.errors import TraceError
from wattkeeper.policies.matching.graph import Graph
from wattkeeper.traces.files.names import derive_name
from wattkeeper.traces.models.graphs import read_graphs
from wattkeeper.traces.readers.base import Format, Quality
from wattkeeper.traces.readers.csvfile import read_csv
from wattkeeper.traces.readers.textfile import first_line
from wattkeeper.traces.schema import MODELS, TRAININGS, field, table_schema
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

SOURCE: Final = (
    "Arrivals of models, as F. Lai et al. ModelKeeper: Accelerating DNN Training via Automated "
    "Training Warmup. NSDI 2023. https://github.com/SymbioticLab/ModelKeeper"
)
NEEDED: Final = (
    field("name", pa.string(), "", "model that arrives", "not empty"),
    field("arrival", pa.float64(), "s", "when", ">= 0"),
)
OPTIONAL: Final = (
    field("task", pa.string(), "", "task and data set", "not empty"),
    field("accuracy", pa.float64(), "", "from scratch", "finite", null=True),
    field("mutated_from", pa.string(), "", "origin", "not empty", null=True),
    field("duration", pa.float64(), "s", "of training from scratch", "> 0", null=True),
    field("gpus", pa.int32(), "", "GPUs that it trains on", "> 0"),
)
OF_MODEL: Final = ("task", "accuracy", "mutated_from")
SHOWN: Final = 20

Row = dict[str, Any]


def read(paths: Sequence[Path]) -> Trace:
    """Read the arrivals and the graphs.

    Raises:
        TraceError: If a file is wrong, or an arrival has no graph.
    """
    return _trace(paths, skip=False)


def read_good(paths: Sequence[Path]) -> Trace:
    """As `read`, without arrivals that have no graph.

    Raises:
        TraceError: If a file is wrong, or no arrival has a graph.
    """
    return _trace(paths, skip=True)


def sniff(path: Path) -> bool:
    """Whether a file has the header of a list of arrivals."""
    return path.is_file() and first_line(path).split(",")[:2] == ["name", "arrival"]


def _trace(paths: Sequence[Path], *, skip: bool) -> Trace:
    lists = [path for path in paths if path.suffix not in ("", ".json") and not path.is_dir()]
    if len(lists) != 1 or len(paths) < 2:
        raise TraceError(
            f"found {len(lists)} lists of arrivals among {len(paths)} paths; needed: one CSV file, "
            "and folders of graphs"
        )
    (path,) = lists
    table, digest = _arrivals(path)
    graphs = _graphs([other for other in paths if other != path])
    rows: list[Row] = table.to_pylist()
    names = [row["name"] for row in rows]
    lacking = [(row, name) for row, name in enumerate(names, 1) if key(name) not in graphs]
    wrong = [f"{path.name}, row {row}: {name!r} has no graph" for row, name in lacking]
    if (wrong and not skip) or len(lacking) == len(rows):
        raise TraceError(
            f"{path.name}: {len(wrong)} of {len(rows)} names have no graph: "
            + ", ".join(name for _, name in lacking[:SHOWN])
            + (", ..." if len(lacking) > SHOWN else "")
            + "; give a folder with their graphs too, or leave them out (--skip-bad)"
        )
    rows = [row for row in rows if key(row["name"]) in graphs]
    trained = _models(rows, graphs, path)
    jobs, trainings = _jobs(rows)
    quality = Quality(
        rows=len(rows) + len(wrong),
        kept=len(rows),
        wrong=len(wrong),
        wrong_examples=wrong[:SHOWN],
        wrong_shown=min(len(wrong), SHOWN),
        dropped={},
        doubts={},
        doubt_examples={},
        time_origin="the first submission",
        time_unit="s",
        cannot_tell=["How long a training takes, unless a column says it."],
    )
    return Trace(
        name=derive_name(path.stem),
        kind="jobs",
        format="modelkeeper",
        origin="recorded",
        tables={"jobs": jobs, "models": trained, "trainings": trainings},
        source=SOURCE,
        licence="as the imported files",
        inputs={path.name: digest},
        quality=quality,
    )


def key(name: str) -> str:
    """Letters and digits of a model's name, by which arrivals and graphs are matched."""
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def _arrivals(path: Path) -> tuple[pa.Table, str]:
    plain = table_schema("arrivals", [], NEEDED)
    extra = read_csv(path, plain).extra
    optional = [want for want in OPTIONAL if want.name in extra]
    full = table_schema("arrivals", [], [*NEEDED, *optional])
    file = read_csv(path, full)
    table = file.table
    if "task" not in table.column_names:
        task = pa.repeat(pa.scalar(path.stem), table.num_rows)
        table = table.append_column("task", task)
    return table, file.sha256


def _graphs(folders: Sequence[Path]) -> dict[str, Graph]:
    graphs: dict[str, Graph] = {}
    for folder in folders:
        for graph in read_graphs(folder):
            before = graphs.setdefault(key(graph.name), graph)
            if before is not graph:
                text = f"models {before.name!r} and {graph.name!r} cannot be told apart"
                raise TraceError(text, folder)
    return graphs


def _models(rows: Sequence[Row], graphs: dict[str, Graph], path: Path) -> pa.Table:
    """One row per name; rows of one name must agree on the model's attributes."""
    models: dict[str, Row] = {}
    for number, row in enumerate(rows, start=1):
        model = {column: row.get(column) for column in OF_MODEL}
        before = models.setdefault(row["name"], model)
        if before != model:
            text = f"{row['name']!r} has another {' or '.join(OF_MODEL)} than before"
            raise TraceError(text, f"{path.name}, arrival {number} of those with graphs")
    whole = [
        {"model": name, "graph": graphs[key(name)].to_json(), **model}
        for name, model in models.items()
    ]
    return pa.Table.from_pylist(whole, schema=MODELS)


def _jobs(rows: Sequence[Row]) -> tuple[pa.Table, pa.Table]:
    often = Counter[str]()
    ids, names = [], [row["name"] for row in rows]
    for name in names:
        often[name] += 1
        ids.append(name if often[name] == 1 else f"{name}#{often[name]}")
    first_s = min(row["arrival"] for row in rows)
    jobs = jobs_table(
        {
            "job_id": pa.array(ids),
            "submit_time_s": pa.array([row["arrival"] - first_s for row in rows]),
            "duration_s": pa.array([row.get("duration") for row in rows], pa.float64()),
            "gpus": pa.array([row.get("gpus", 1) for row in rows], pa.int32()),
        }
    )
    return jobs, pa.table({"job_id": ids, "model": names}, schema=TRAININGS)


FORMAT: Final = Format(
    name="modelkeeper",
    summary="arrivals of models, with their graphs, for the zoo (ModelKeeper, NSDI '23)",
    takes="a CSV file with name and arrival (s), and folders of graphs (JSON)",
    read=read,
    sniff=sniff,
    read_good=read_good,
)
