"""Row by row equality with the published Zeus simulator, through the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command, run_command

EXACT = 1e-9


def assert_equal(ours: pd.DataFrame, published: pd.DataFrame, same: dict, close: dict) -> None:
    assert len(ours) == len(published) > 0
    for column, reference in same.items():
        differ = ours[column].to_numpy() != published[reference].to_numpy()
        assert not differ.any(), f"{column}: row {int(differ.argmax())}"
    for column, reference in close.items():
        np.testing.assert_allclose(
            ours[column], published[reference], rtol=EXACT, atol=0, err_msg=column
        )


@pytest.fixture(scope="module", params=["V100", pytest.param("RTX6000", marks=pytest.mark.slow)])
def gpu(request: pytest.FixtureRequest) -> str:
    """A GPU of the published runs."""
    return str(request.param)


@pytest.fixture(scope="module")
def ten_seeds(
    gpu: str, zeus_traces: Path, tmp_path_factory: pytest.TempPathFactory
) -> pd.DataFrame:
    """The jobs of ten seeds of the published scenario."""
    folder = tmp_path_factory.mktemp("ten_seeds")
    run_command(
        "run",
        "zeus-nsdi23",
        "--set",
        f"cluster.gpu={gpu}",
        "--seeds",
        "10",
        "--out",
        "out",
        traces=zeus_traces,
        cwd=folder,
    )
    return pd.read_parquet(folder / "out/jobs.parquet")


def test_sequential_runs(ten_seeds: pd.DataFrame, shared: Path, gpu: str) -> None:
    ours = ten_seeds[(ten_seeds["variant"] == "zeus") & (ten_seeds["seed"] <= 5)].sort_values(
        ["seed", "workload", "recurrence", "attempt"], kind="stable"
    )
    published = pd.read_csv(shared / "reference/zeus/sequential_runs.csv.gz")
    published = published[published["gpu"] == gpu.lower()].sort_values(
        ["seed", "dataset", "recurrence", "try"], kind="stable"
    )
    assert_equal(
        ours,
        published,
        {
            "seed": "seed",
            "workload": "dataset",
            "recurrence": "recurrence",
            "attempt": "try",
            "batch_size": "bs",
            "power_limit_w": "pl_w",
            "profiled": "profiled",
            "reached_target": "reached",
        },
        {"energy_j": "energy_j", "time_s": "time_s", "cost": "cost_j"},
    )


def test_overlapping_runs(zeus: Command, shared: Path, tmp_path: Path, gpu: str) -> None:
    settings = ("--set", "workload.trace=groups", "--set", f"cluster.gpu={gpu}")
    zeus("run", "zeus-overlap", *settings, "--out", "out")
    ours = pd.read_parquet(tmp_path / "out/jobs.parquet")
    ours = ours[ours["variant"] == "zeus"].sort_values("group_id", kind="stable")
    ours["order"] = ours.groupby("group_id").cumcount()
    published = pd.read_csv(shared / "reference/zeus/overlapping_runs.csv.gz", dtype={"group": str})
    published = published[published["gpu"] == gpu.lower()].sort_values(
        ["group", "order"], kind="stable"
    )
    assert_equal(
        ours,
        published,
        {
            "group_id": "group",
            "order": "order",
            "workload": "dataset",
            "batch_size": "bs",
            "power_limit_w": "pl_w",
            "reached_target": "reached",
        },
        {"energy_j": "energy_j", "time_s": "time_s"},
    )


def test_summary_over_ten_seeds(ten_seeds: pd.DataFrame, shared: Path, gpu: str) -> None:
    """The default, grid search and Zeus: last five recurrences, and all of them."""
    keys = ["variant", "workload", "seed", "recurrence"]
    jobs = ten_seeds.groupby(keys, as_index=False)[["energy_j", "time_s", "cost"]].sum()
    last = jobs["recurrence"] > jobs.groupby("workload")["recurrence"].transform("max") - 5
    last5 = jobs[last].groupby(["workload", "variant"])[["energy_j", "time_s", "cost"]].mean()
    total = jobs.groupby(["workload", "variant"])[["energy_j", "time_s", "cost"]].sum() / 10
    published = pd.read_csv(shared / "reference/zeus/summary_per_dataset_gpu.csv")
    published = published[published["gpu"] == gpu.lower()].set_index("dataset")
    assert len(published) == 6
    for variant, name in (("default", "default"), ("grid-search", "grid"), ("zeus", "zeus")):
        for column, printed in (("energy_j", "eta_j"), ("time_s", "tta_s"), ("cost", "cost_j")):
            for kind, values in (("last5", last5), ("cum", total)):
                np.testing.assert_allclose(
                    values.xs(variant, level="variant")[column],
                    published.loc[values.xs(variant, level="variant").index][
                        f"{name}_{kind}_{printed}"
                    ],
                    rtol=1e-6,
                    err_msg=f"{variant} {kind} {column}",
                )


@pytest.mark.parametrize("other", ["A40", pytest.param("P100", marks=pytest.mark.slow)])
def test_other_gpus_run_to_the_end(zeus: Command, tmp_path: Path, other: str) -> None:
    zeus("run", "zeus-nsdi23", "--set", f"cluster.gpu={other}", "--out", "out")
    ours = pd.read_parquet(tmp_path / "out/jobs.parquet")
    reached = ours.groupby(["variant", "job_id"])["reached_target"].any()
    assert reached.loc[["default", "zeus"]].all()
    assert ours["workload"].nunique() == 6
