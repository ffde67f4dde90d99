"""Ensembles with and without common cores, through the command."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.live.search.searches import TINY, run, trainings
from wattkeeper.sim.search.architectures import count_parameters, parse
from wattkeeper.sim.search.ensembles import core
from wattkeeper.sim.search.network_space import NetworkSpace

pytest.importorskip("torch", reason="torch is not installed: pip install 'wattkeeper[live]'")
pytest.importorskip(
    "sklearn", reason="scikit-learn is not installed: pip install 'wattkeeper[digits]'"
)

MEMBERS = ["c3-8-c3-12", "c3-12-c5-12", "c3c3-8-c3-16", "r3-8-c3-12"]
"""The last is of a family of its own."""


def scenario(
    tmp_path: Path,
    members: str = f"{{networks: [{', '.join(MEMBERS)}]}}",
    cores: str = "{share: 0.2}",
    scratch: str = "none",
) -> Path:
    path = tmp_path / "ensemble.yaml"
    path.write_text(
        "name: ensemble\n"
        "question: Cores or a zoo?\n"
        "cluster: {gpu: CPU, gpus: 1, idle_power_w: 0}\n"
        f"workload: {{kind: ensemble, members: {members}}}\n"
        "zoo: {}\n"
        "variants:\n"
        f"  scratch: {{policies: {{configure: {scratch}}}}}\n"
        f"  mothernets: {{policies: {{configure: lineage}}, workload: {{cores: {cores}}}}}\n"
        "baseline: scratch\n"
        "seeds: 1\n"
    )
    return path


def metrics_of(out: Path) -> dict[str, float]:
    metrics = json.loads((out / "summary.json").read_text())["variants"]["mothernets"]["metrics"]
    return {name: metric["mean"] for name, metric in metrics.items()}


def test_members_start_from_the_core_of_their_group(tmp_path: Path) -> None:
    path, out = scenario(tmp_path), tmp_path / "out"
    done = run(path, out, *TINY)
    assert done.exit_code == 0, done.output
    rows = trainings(out, "mothernets")
    common = core([parse(each) for each in MEMBERS[:3]])
    assert common == parse("c3-8-c3-12")
    assert rows["model"].tolist() == [
        "core0-c3-8-c3-12",
        "member00-c3-8-c3-12",
        "member02-c3c3-8-c3-16",
        "member01-c3-12-c5-12",
        "member03-r3-8-c3-12",
    ]
    first = rows["model"][0]
    assert rows["parent"].fillna("").tolist() == ["", first, first, first, ""]
    scratch = trainings(out, "scratch")
    assert scratch["model"].tolist() == [f"member{n:02d}-{each}" for n, each in enumerate(MEMBERS)]
    assert scratch["parent"].isna().all()

    metrics = metrics_of(out)
    assert metrics["work"] == rows["work"].sum()
    assert metrics["core_work"] == rows["work"][0]
    assert metrics["accuracy"] == pytest.approx(rows["accuracy"][1:].mean())
    outputs = next(out.with_name("out.trainings").glob("mothernets-*.outputs"))
    said = [np.load(outputs / f"{name}.npy") for name in rows["model"][1:]]
    assert np.allclose(np.sum(said, axis=2), 1)
    assert metrics["ensemble_accuracy"] > 0.1

    # An interrupted ensemble goes on as if it had not been.
    log = next(out.with_name("out.trainings").glob("mothernets-*.jsonl"))
    log.write_text("".join(log.read_text().splitlines(keepends=True)[:3]))
    shutil.rmtree(out)
    again = run(path, out, *TINY)
    assert again.exit_code == 0, again.output
    pd.testing.assert_frame_equal(trainings(out, "mothernets"), rows)
    assert metrics_of(out)["ensemble_accuracy"] == metrics["ensemble_accuracy"]

    # What a member said is needed again for the ensemble.
    (outputs / "member01-c3-12-c5-12.npy").write_bytes(b"nothing")
    shutil.rmtree(out)
    damaged = run(path, out, *TINY)
    assert damaged.exit_code == 2
    assert "member01-c3-12-c5-12.npy" in damaged.output


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"members": "{networks: [c3-8, x]}"}, "is no architecture"),
        ({"members": "{networks: [c3-8]}"}, "networks"),
        ({"members": "{}"}, "state either the networks, or how many"),
        ({"members": "{count: 3, networks: [c3-8, c3-8]}"}, "state either the networks, or how"),
        (
            {"members": "{count: 9, space: {stages: 1, widths: [8], blocks: [1], kernels: [3]}}"},
            "has only 2 networks",
        ),
        ({"cores": "{}"}, "state either the share"),
        ({"cores": "{share: 0.2, number: 2}"}, "state either the share"),
        ({"cores": "{number: 1}"}, "cannot be 1 groups"),
        ({"cores": "{share: 1}"}, "is alone in its group"),
        ({"scratch": "lineage"}, "the variant has no cores"),
    ],
)
def test_ensembles_that_cannot_be_are_refused(
    changed: dict[str, str], said: str, tmp_path: Path
) -> None:
    done = run(scenario(tmp_path, **changed), tmp_path / "out")
    assert done.exit_code == 2
    assert said in done.output.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_members_keep_the_function_of_their_core() -> None:
    import torch

    from wattkeeper.live.search.layers import build
    from wattkeeper.live.weight_transfer.transfer import transfer

    rng, pairs = random.Random(1), 0
    space = NetworkSpace(2, (8, 12, 16), (1, 2), ("plain", "residual"), (3, 5))
    images = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(2)
    while pairs < 30:
        members = [space.draw_mixed(rng) for _ in range(2)]
        common = core(members)
        if common is None:
            continue
        trained = build(common, 1, 10)
        trained(images)  # moves the batch norms off their start
        for member in members:
            pairs += 1
            assert count_parameters(common) <= count_parameters(member)
            grown = build(member, 1, 10)
            transfer(trained, grown, (images,))
            trained.eval(), grown.eval()
            with torch.inference_mode():
                assert torch.allclose(grown(images), trained(images), atol=1e-5)
            trained.train()
