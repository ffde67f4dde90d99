"""Altered logs of every format: `traces import` reads them, or says what is wrong."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from tests.scenarios.test_damage import CODES, Hung, ask
from tests.support import damage, measurements, mlperf
from tests.traces.formats import test_formats, test_nas_table, test_pollux
from tests.traces.power import test_power_log
from wattkeeper.policies.errors import LONGEST_MESSAGE, SHOWN
from wattkeeper.policies.matching.graph import SOURCE, Graph, Node, Tensor
from wattkeeper.traces.formats import registry

DATA = Path(__file__).parents[2] / "data" / "formats"
MOST_MEMORY = 2 << 30
LONGEST = 2 * (SHOWN + 2) * LONGEST_MESSAGE
OFFERED = {
    "acme": ("acme.csv",),
    "csv": ("csv.csv",),
    "gavel": ("gavel.trace", "gavel.json"),
    "helios": ("helios.csv",),
    "kubernetes": ("kubernetes_pods.jsonl",),
    "openb-2023": ("openb_pods.csv", "openb_nodes.csv"),
    "pai-2020": ("pai_job_table.csv", "pai_task_table.csv"),
    "philly-csv": ("philly-csv.csv",),
    "philly-json": ("philly_job_log.json",),
    "slurm": ("slurm.txt",),
    "swf": ("swf.swf",),
    "spot-2026": ("spot_job_info_df.csv", "spot_node_info_df.csv"),
}
"""Files in `DATA` by format."""
ARRIVALS = (
    "name,arrival,task,accuracy,mutated_from,duration,gpus\n"
    "net,0,images,0.5,,100,1\nplain,3.5,images,,net,50,2\nnet,9,images,0.5,,100,1\n"
)
EVENTS = (
    "time_s,event,node,cause,deadline_s\n1,notice,a,,121\n121,down,a,disk,\n600,up,a,,\n"
    "700.5,down,b,,\n"
)
SACCT = """{"meta": {"slurm": {}}, "jobs": [
{"job_id": 7, "user": "ann", "partition": "gpu", "state": {"current": ["COMPLETED"]},
 "time": {"submission": 1700000000, "eligible": 1700000000, "start": 1700000009, "end": 1700000609,
          "elapsed": 600, "limit": {"set": true, "infinite": false, "number": 60}},
 "tres": {"allocated": [{"type": "gres", "name": "gpu:a100", "count": 2}]},
 "steps": [{"step": {"id": "7.batch"}, "statistics": {"energy": {"consumed": 9}}}]},
{"job_id": 8, "array": {"job_id": 8, "task_id": {"set": true, "number": 1}}, "user": "bob",
 "time": {"submission": 1700000100, "start": 0, "end": 0, "elapsed": 0}}]}
"""
SECOND_FORMS = (("node-events", ("spot.csv",)), ("slurm", ("sacct.json",)))
"""Files of formats that have a form besides the one of `write_good`."""
PUBLISHED = (
    '{"model": "net", "num_tensors": 1, "opts": ["Conv", "Relu"], "dims": [[8, 3], []], '
    '"parents": [[-1], [0]], "layer": ["w", null]}'
)


def write_good(root: Path) -> Mapping[str, tuple[str, ...]]:
    """Write small files of every format; their paths in the folder, by format."""
    root.mkdir()
    names = dict(OFFERED)
    for name in (name for each in OFFERED.values() for name in each):
        shutil.copy(DATA / name, root)
    test_formats.folder(root)
    (root / "groups.csv").write_text(test_formats.JOBS)
    (root / "arrivals.csv").write_text(ARRIVALS)
    (root / "net.json").write_text(PUBLISHED)
    weight = Tensor("a", "weight", (2, 2))
    nodes = (Node("Conv", (SOURCE,), (weight,)), Node("Relu", (0,)))
    (root / "plain.json").write_text(Graph("plain", nodes).to_json())
    (root / "events.csv").write_text(EVENTS)
    (root / "spot.csv").write_text("0,add,a\n0,add,b\n60000,remove,a\n")
    (root / "sacct.json").write_text(SACCT)
    (root / "capacity.csv").write_text("0,2\n60,1\n120,4\n")
    (root / "cells.csv").write_text("\n".join([test_nas_table.HEAD, *test_nas_table.ROWS]) + "\n")
    names["nas-table"] = ("cells.csv",)
    samples = [test_power_log.HEADER, *test_power_log.smi(["100.00 W", "[N/A]", "300.00 W"])]
    (root / "power.csv").write_text("\n".join(samples) + "\n")
    names["power-log"] = ("power.csv",)
    names["node-events"] = ("events.csv",)
    names["spot-capacity"] = ("capacity.csv",)
    names["zeus-nsdi23"] = ("summary_train.csv", "summary_power_v100.csv")
    names["zeus-groups"] = ("groups.csv",)
    names["modelkeeper"] = ("arrivals.csv", "net.json", "plain.json")
    test_pollux.write(root)
    names["pollux"] = ("cifar10/placements.csv", "cifar10/validation-32.csv")
    (root / "measured.csv").write_text(measurements.TABLE)
    names["profiles"] = ("measured.csv",)
    mlperf.write_results(root / "mlperf")
    files = (path for path in (root / "mlperf").rglob("*") if path.is_file())
    names["mlperf-training"] = tuple(sorted(path.relative_to(root).as_posix() for path in files))
    return names


def paths_of(form: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """What an import is given: the files, or the folder that they are in."""
    return ("mlperf",) if form == "mlperf-training" else names


def alter(folder: Path, names: tuple[str, ...], rng: Random) -> str:
    """Alter one to three times a file; says which one and how."""
    told = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        path = folder / rng.choice(names)
        ways = [damage.alter_bytes, damage.alter_encoding]
        ways += [damage.alter_table if path.suffix != ".json" else damage.alter_json] * 4
        try:
            told.append(f"{path.name} {rng.choice(ways)(path, rng)}")
        except (ValueError, TypeError):  # no longer JSON
            told.append(f"{path.name} {damage.alter_bytes(path, rng)}")
    return ", ".join(told)


def storm(root: Path, seed: int, count: int, every: int) -> list[str]:
    """Import many altered files; the faults found.

    Args:
        root: An empty folder.
        seed: Of all that is drawn.
        count: Inputs.
        every: One of so many has a process of its own.
    """
    formats = write_good(root / "good")
    assert set(formats) == set(registry())
    inputs = sorted([*formats.items(), *SECOND_FORMS])
    faults, codes = [], Counter[str]()
    for number in range(count):
        rng = Random(f"{seed} {number}")
        form, names = rng.choice(inputs)
        folder = root / "altered"
        damage.restore(folder, root / "good")
        told = alter(folder, names, rng)
        asked = form if rng.random() < 0.9 else "auto"
        words = ["traces", "import", asked]
        words += [f"altered/{name}" for name in paths_of(form, names)]
        words += ["--name", "x", "--replace", *(["--skip-bad"] if rng.random() < 0.4 else [])]
        commands = [tuple(words)]
        for command in commands:
            try:
                answer = ask(command, process=number % every == 0)
            except (Hung, subprocess.TimeoutExpired):
                faults.append(f"{seed} {number}: {form}: {told}: hung")
                continue
            codes[f"{command[1]} {answer.code}"] += 1
            wrong = ""
            if "Traceback" in answer.err or answer.code not in CODES:
                wrong = f"exit code {answer.code}"
            elif answer.code and not answer.err.strip():
                wrong = "no message"
            elif len(answer.err) > LONGEST:
                wrong = "long message"
            elif command[1] == "describe" and answer.code:
                wrong = "imported, and cannot be read"
            if wrong:
                faults.append(
                    f"{seed} {number}: {form}: {told}: {' '.join(command)}: {wrong}: "
                    f"{answer.err[-400:]}"
                )
            if command[1] == "import" and answer.code == 0 and rng.random() < 0.3:
                commands.append(("traces", "describe", "x"))
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(each).ru_maxrss for each in who) << 10
    if peak >= MOST_MEMORY:
        faults.append(f"{seed}: {peak >> 20} MiB of memory")
    print(
        f"formats, seed {seed}: {count} altered, {dict(sorted(codes.items()))}, "
        f"{peak >> 20} MiB, {len(faults)} faults"
    )
    return faults


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WATTKEEPER_TRACES", str(tmp_path / "library"))
    monkeypatch.setenv("WATTKEEPER_STATE", str(tmp_path / "state"))
    return tmp_path


def test_unaltered_files_are_read(place: Path) -> None:
    for form, names in (*write_good(place / "good").items(), *SECOND_FORMS):
        paths = (f"good/{name}" for name in paths_of(form, names))
        answer = ask(("traces", "import", form, *paths))
        assert answer.code == 0, answer.err


def test_altered_files(place: Path) -> None:
    assert storm(place, 1, 60, 60) == []


@pytest.mark.slow
def test_storm_of_altered_files(place: Path) -> None:
    """`WATTKEEPER_FUZZ_FORMATS` is the seed and the number of inputs."""
    seed, count = map(int, os.environ.get("WATTKEEPER_FUZZ_FORMATS", "17 4500").split())
    assert storm(place, seed, count, 100) == []
