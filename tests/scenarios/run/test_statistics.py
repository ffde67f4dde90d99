"""The statistics of a run, computed again from its tables."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.support.runs import SEEDS, VARIANTS, Ran


def by_seed(quick: Ran) -> dict[str, pd.DataFrame]:
    """Each metric by seed (rows) and variant (columns), computed again from the tables."""
    jobs = quick.table("jobs")
    keys = ["variant", "seed"]
    each = jobs.groupby([*keys, "job_id"], as_index=False).agg(
        energy_j=("energy_j", "sum"),
        time_s=("time_s", "sum"),
        cost=("cost", "sum"),
        submitted=("submit_time_s", "min"),
        started=("start_time_s", "min"),
        ended=("finish_time_s", "max"),
        reached=("reached_target", "any"),
        group=("group_id", "first"),
        recurrence=("recurrence", "first"),
    )
    last = each["recurrence"] > each.groupby([*keys, "group"])["recurrence"].transform("max") - 5
    of_all, of_last, of_reached = (
        part.groupby(keys) for part in (each, each[last], each[each["reached"]])
    )
    each["jct_s"] = each["ended"] - each["submitted"]
    each["queue_s"] = each["started"] - each["submitted"]
    series: dict[str, Any] = {
        "jobs": of_all.size(),
        "attempts": jobs.groupby(keys).size(),
        "gave_up": (~each["reached"]).groupby([each[key] for key in keys]).sum(),
        "energy_j": of_all["energy_j"].sum(),
        "time_s": of_all["time_s"].sum(),
        "cost": of_all["cost"].sum(),
        "last5_energy_j": of_last["energy_j"].mean(),
        "last5_time_s": of_last["time_s"].mean(),
        "last5_cost": of_last["cost"].mean(),
        "energy_to_accuracy_j": of_reached["energy_j"].mean(),
        "time_to_accuracy_s": of_reached["time_s"].mean(),
        "jct_s": each.groupby(keys)["jct_s"].mean(),
        "p95_jct_s": each.groupby(keys)["jct_s"].quantile(0.95),
        "preemptions": jobs.groupby(keys)["preemptions"].sum(),
        "queue_delay_s": each.groupby(keys)["queue_s"].mean(),
        "makespan_s": of_all["ended"].max() - of_all["submitted"].min(),
    }
    line = quick.table("timeline")
    begin_s, end_s = (line.groupby("seed")["time_s"].transform(border) for border in ("min", "max"))
    lasts = (-line.groupby(keys)["time_s"].diff(-1)).fillna(end_s - line["time_s"])
    runs = [line[key] for key in keys]
    span = (end_s - begin_s).groupby(runs).first()
    whole = (line["power_w"] * lasts).groupby(runs).sum()
    series["cluster_energy_j"] = whole
    series["training_energy_j"] = of_all["energy_j"].sum()  # no job holds GPUs without training
    series["held_energy_j"] = series["asleep_energy_j"] = whole * 0
    series["idle_energy_j"] = whole - of_all["energy_j"].sum()
    series["gpu_utilisation"] = (line["gpus_busy"] * lasts).groupby(runs).sum() / (3 * span)
    return {name: values.unstack("variant")[VARIANTS] for name, values in series.items()}


def test_summary_has_its_documented_form(quick: Ran) -> None:
    summary = quick.json("summary")
    assert list(summary) == ["variants", "by"]
    assert list(summary["by"]) == ["workload", "gpu_type", "replayed"]
    assert list(summary["by"]["workload"]) == ["image", "language", "recommendation"]
    assert list(summary["by"]["gpu_type"]) == ["SYN-250W"]
    parts = [summary["variants"], *(p for by in summary["by"].values() for p in by.values())]
    for part in parts:
        assert list(part) == VARIANTS
        for variant in part.values():
            assert list(variant) == ["metrics", "versus"]
            for figures in variant["metrics"].values():
                assert list(figures) == ["mean", "std", "ci95", "n"]
                assert figures["n"] == 5
                low, high = figures["ci95"]
                assert low <= figures["mean"] <= high
                assert figures["std"] >= 0
            versus = dict(variant["versus"])
            assert versus.pop("baseline") == "default"
            assert set(versus) == set(variant["metrics"])
            for figures in versus.values():
                assert list(figures) == ["ratio", "ci95", "effect", "verdict"]


def test_statistics_over_seeds(quick: Ran) -> None:
    variants = quick.json("summary")["variants"]
    again = by_seed(quick)
    assert {*again, "regret"} == set(variants["zeus"]["metrics"])
    for metric, values in again.items():
        assert values.index.tolist() == SEEDS
        for name in VARIANTS:
            figures, versus = variants[name]["metrics"][metric], variants[name]["versus"][metric]
            assert figures["mean"] == pytest.approx(values[name].mean(), rel=1e-9), metric
            scale = abs(figures["mean"]) * 1e-9
            assert figures["std"] == pytest.approx(values[name].std(), rel=1e-6, abs=scale), metric
            if (values["default"] == 0).all():
                assert versus["ratio"] is versus["ci95"] is None
                assert versus["verdict"] == "identical", metric
                continue
            ratio = (values[name] / values["default"]).mean()
            assert versus["ratio"] == pytest.approx(ratio, rel=1e-9), metric
    assert variants["default"]["versus"]["energy_j"] == {
        "ratio": 1.0,
        "ci95": [1.0, 1.0],
        "effect": None,
        "verdict": "identical",
    }


def test_intervals_are_those_of_the_bootstrap(quick: Ran) -> None:
    """Against all 5 ** 5 samples with replacement, rather than some of them.

    Widened for that there are few: by sqrt(5 / 4), and t of 4 degrees over the normal quantile.
    """
    widened = (5 / 4) ** 0.5 * 2.7764451 / 1.9599640
    samples = np.array(list(itertools.product(range(5), repeat=5)))
    variants = quick.json("summary")["variants"]
    again = by_seed(quick)
    for metric in ("energy_j", "time_s", "jct_s", "cluster_energy_j"):
        for name in VARIANTS[1:]:
            values = again[metric][name].to_numpy()
            ratios = values / again[metric]["default"].to_numpy()
            for seen, figures in (
                (values, variants[name]["metrics"][metric]),
                (ratios, variants[name]["versus"][metric]),
            ):
                exact = np.quantile(seen[samples].mean(axis=1), (0.025, 0.975))
                exact = seen.mean() + widened * (exact - seen.mean())
                width = exact[1] - exact[0]
                np.testing.assert_allclose(figures["ci95"], exact, rtol=0, atol=0.15 * width)


def test_regret_is_cost_less_what_the_best_would_cost(quick: Ran) -> None:
    """The best configuration's expected cost is the same for all; the oracle is near it."""
    variants = quick.json("summary")["variants"]
    best = [
        v["metrics"]["cost"]["mean"] - v["metrics"]["regret"]["mean"] for v in variants.values()
    ]
    assert best == pytest.approx([best[0]] * 4, rel=1e-9)
    assert abs(variants["oracle"]["metrics"]["regret"]["mean"]) < 0.01 * best[0]
    for name in ("default", "grid-search", "zeus"):
        assert variants[name]["metrics"]["regret"]["mean"] > 0.01 * best[0]


def test_parts_sum_to_the_whole(quick: Ran) -> None:
    summary = quick.json("summary")
    for name in VARIANTS:
        whole = summary["variants"][name]["metrics"]
        for metric in ("jobs", "attempts", "gave_up", "energy_j", "time_s", "cost", "regret"):
            for by in ("workload", "gpu_type"):
                parts = [p[name]["metrics"][metric]["mean"] for p in summary["by"][by].values()]
                assert sum(parts) == pytest.approx(whole[metric]["mean"], rel=1e-9), metric


def test_by_workload(quick: Ran) -> None:
    jobs = quick.table("jobs")
    by = quick.json("summary")["by"]["workload"]
    energy = jobs.groupby(["workload", "variant", "seed"])["energy_j"].sum()
    for workload, part in by.items():
        values = energy[workload].unstack("variant")
        for name in VARIANTS:
            figures = part[name]["metrics"]["energy_j"]
            assert figures["mean"] == pytest.approx(values[name].mean(), rel=1e-9)
            ratio = (values[name] / values["default"]).mean()
            assert part[name]["versus"]["energy_j"]["ratio"] == pytest.approx(ratio, rel=1e-9)


def test_the_timeline_accounts_for_all_energy(quick: Ran) -> None:
    """Energy of the cluster is that of the jobs and of idle GPUs, 40 W each."""
    line, jobs = quick.table("timeline"), quick.table("jobs")
    again = by_seed(quick)
    for variant, seed in itertools.product(VARIANTS, SEEDS):
        part = line[(line["variant"] == variant) & (line["seed"] == seed)]
        assert part["time_s"].is_monotonic_increasing
        assert part["time_s"].is_unique
        assert part["gpus_busy"].between(0, 3).all()
        assert (part["jobs_waiting"] >= 0).all()
        assert part["gpus_busy"].iloc[-1] == part["jobs_waiting"].iloc[-1] == 0
        assert part["power_w"].iloc[-1] == pytest.approx(120, rel=1e-12)
        own = jobs[(jobs["variant"] == variant) & (jobs["seed"] == seed)]
        held = (own["finish_time_s"] - own["start_time_s"]).sum()
        of_seed = line.loc[line["seed"] == seed, "time_s"]
        span = of_seed.max() - of_seed.min()
        total = own["energy_j"].sum() + 40 * (3 * span - held)
        assert again["cluster_energy_j"].loc[seed, variant] == pytest.approx(total, rel=1e-9)
        used = again["gpu_utilisation"].loc[seed, variant]
        assert used == pytest.approx(held / (3 * span), rel=1e-9)
