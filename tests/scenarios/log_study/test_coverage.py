"""What of a log a study covers is stated, and misspelt GPU types are refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.log_study.coverage import begin_with_log, check_types
from wattkeeper.traces.arrow import replace_column
from wattkeeper.traces.tables import jobs_table
from wattkeeper.traces.trace import Trace

DAY_S = 86400.0


def jobs(submit_s: list[float], types: Sequence[str | None]) -> pa.Table:
    """Jobs of an hour on one GPU."""
    return jobs_table(
        {
            "job_id": pa.array([str(number) for number in range(len(submit_s))]),
            "submit_time_s": pa.array(submit_s),
            "duration_s": pa.array([3600.0] * len(submit_s)),
            "gpus": pa.array([1] * len(submit_s), pa.int32()),
            "gpu_type": pa.array(types, pa.string()),
        }
    )


def write_three_jobs(inside: Command, folder: Path, duration_s: int, rest: str) -> None:
    """Write `mine.yaml`: under fifo and fjf, the second of three jobs needs both GPUs."""
    rows = "".join(f"{number},{duration_s},{gpus}\n" for number, gpus in enumerate((1, 2, 1)))
    (folder / "jobs.csv").write_text(f"submit_time_s,duration_s,gpus\n{rows}")
    inside("traces", "import", "csv", "jobs.csv", "--name=three")
    (folder / "mine.yaml").write_text(
        "name: mine\ncluster: {gpu: a, gpus: 2, idle_power_w: 50, busy_power_w: 300, pue: 1.5}\n"
        "workload: {kind: trace, trace: three}\nvariants:\n  fifo: {policies: {select: fifo}}\n"
        f"  fjf: {{policies: {{select: fjf}}}}\n{rest}\n"
    )


def log_of(table: pa.Table) -> Trace:
    return Trace("log", "jobs", {"jobs": table}, "slurm", "recorded", "test", "none")


def test_what_was_submitted_long_before_counts_from_the_begin_of_the_log() -> None:
    """Of 1,000 jobs, five were submitted long before the log begins; one of them started, too."""
    submit_s = [0.0, 1.0, 2.0, 3.0, 4.0, *(40 * DAY_S + 864.5 * number for number in range(995))]
    begin_s = 40 * DAY_S
    start_s = [None, begin_s + 5, begin_s - 5, begin_s + 9, None, *submit_s[5:]]
    table = replace_column(jobs(submit_s, [None] * 1000), "start_time_s", pa.array(start_s))
    changed = begin_with_log(log_of(table))
    kept = changed.tables["jobs"]
    assert kept["job_id"].to_pylist() == [str(number) for number in range(1000) if number != 2]
    assert kept["submit_time_s"].to_pylist() == [begin_s] * 4 + submit_s[5:]
    assert kept["start_time_s"].to_pylist() == [*start_s[:2], *start_s[3:]]
    assert_states(changed.notes[0], "4 jobs", "3,456,000 s", "0.5 %")
    assert_states(changed.notes[1], "1 job ", "0.1 % of the GPU hours", "left out")


def test_a_short_log_stays_as_it_is() -> None:
    trace = log_of(jobs([0.0, 6 * DAY_S], [None, None]))
    assert begin_with_log(trace) is trace


def test_a_type_that_nodes_lack_is_told_with_its_share() -> None:
    told: list[str] = []
    check_types(jobs([0.0] * 4, ["a100", "a100", "v100", "a100|h100"]), {"a100"}, told.append)
    assert len(told) == 1
    assert_states(told[0], "'v100' (1 job)", "25 %")
    check_types(jobs([0.0] * 2, ["a100", "a100"]), {"a100", "v100"}, told.append)
    assert len(told) == 1


def test_clusters_that_stand_idle_at_the_end_are_told(inside: Command, tmp_path: Path) -> None:
    """Under fifo, two jobs of a GPU each wait for one of two GPUs; they end a day later."""
    write_three_jobs(inside, tmp_path, 86400, "baseline: fjf")
    said = " ".join(inside("run", "mine.yaml", "--out", "out").stdout.split())
    assert_states(said, "fifo ends 1.0 days after fjf", "stand idle")
    assert "sleeping" not in said
    sleep = "variants.fjf.cluster.sleep={after_s: 60, power_w: 5, wake_s: 60}"
    asleep = inside("run", "mine.yaml", "--out", "asleep", "--set", sleep).stdout
    assert_states(" ".join(asleep.split()), "stand idle, and sleeping nodes save more")
    turned = inside("run", "mine.yaml", "--out", "turned", "--set", "baseline=fifo").stdout
    assert "stand idle" not in turned


def test_jobs_without_a_type_are_told_where_there_are_several() -> None:
    told: list[str] = []
    check_types(jobs([0.0] * 3, [None, None, "a100"]), {"a100"}, told.append)
    assert not told
    check_types(jobs([0.0] * 3, [None, None, "a100"]), {"a100", "v100"}, told.append)
    assert_states(told[0], "2 jobs", "--partitions")


def test_a_misspelt_type_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        check_types(jobs([0.0] * 3, ["a100", "a100", "v100"]), {"A100", "v100"}, print)
    assert_states(str(refused.value), "'a100' (2 jobs)", "66.7 %", "'A100'", "--nodes")


def test_few_jobs_of_a_type_that_is_gone_are_left_out() -> None:
    """Though other nodes are not asked for: new ones, that no job has used yet."""
    told: list[str] = []
    check_types(jobs([0.0] * 30, ["k80"] + ["a100"] * 29), {"a100", "h100"}, told.append)
    assert_states(told[0], "'k80' (1 job)", "3.33 %", "left out")


def test_work_outside_the_window_is_told(inside: Command, tmp_path: Path) -> None:
    """Under fifo, the third job waits for the second one, which needs both GPUs."""
    write_three_jobs(inside, tmp_path, 1000, "baseline: fifo\naccounting: {until_s: 1500}")
    said = inside("run", "mine.yaml", "--out", "out").stdout
    assert_states(" ".join(said.split()), "time that is charged: 50.0 % (fifo), 25.1 % (fjf)")
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    assert_states(page, "time that is charged: 50.0 % (fifo), 25.1 % (fjf)")
    whole = inside("run", "mine.yaml", "--out", "all", "--set", "accounting={}").stdout
    assert "outside the time" not in whole
    compared = inside("compare", "out", "all").stdout
    assert_states(" ".join(compared.split()), "charged over different times")
    same = inside("compare", "out", "out").stdout
    assert "charged over different times" not in same
