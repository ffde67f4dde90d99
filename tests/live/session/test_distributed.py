"""Sessions in the processes of one training."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import finish
from tests.support.sessions import history, train
from wattkeeper.policies.errors import InputError

RANKS = """
import sys, torch.distributed as dist
from wattkeeper.live import Session
dist.init_process_group("gloo")
rank = dist.get_rank()
with Session("mine", batch_sizes=(16, 32), default_batch_size=32, max_epochs=9, eta=0,
             target=3.0) as session:
    for epoch in session.epochs(range(4)):
        for _ in epoch:
            pass
        session.report(epoch.number if rank == 0 else 0.0)
with open(f"{sys.argv[1]}.{rank}", "w") as file:
    print(rank, session.batch_size, session.outcome.epochs, session.outcome.cause, file=file)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_rank_0_decides_for_all_processes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(RANKS)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*run, "train.py", "said"], cwd=tmp_path, check=True, capture_output=True)
    said = [(tmp_path / f"said.{rank}").read_text().split() for rank in (0, 1)]
    assert said == [["0", "32", "3", "reached"], ["1", "32", "3", "reached"]]
    assert [row["cause"] for row in history()] == ["reached"]


WARM = """
import sys, torch, torch.distributed as dist
from wattkeeper.live import Session
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
for recurrence in (1, 2):
    with Session("mine", batch_sizes=(16, 32), default_batch_size=32, max_epochs=2, eta=0,
                 target=1.0) as session:
        model = torch.nn.Linear(4, 2)
        report = session.warm_start(model, "zoo")
        with open(f"said.{rank}", "a") as file:
            print(report is not None, [w.tolist() for w in model.parameters()], file=file)
        for epoch in session.epochs(range(4)):
            with torch.no_grad():
                model.weight += 1
            session.report(1.0)
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_all_processes_start_from_the_weights_of_rank_0(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from wattkeeper.live import Zoo

    (tmp_path / "train.py").write_text(WARM)
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    subprocess.run([*run, "train.py"], cwd=tmp_path, check=True, capture_output=True)
    said = [(tmp_path / f"said.{rank}").read_text().splitlines() for rank in (0, 1)]
    assert said[0] == said[1], "both begin alike, with and without a parent"
    assert [line.split()[0] for line in said[0]] == ["False", "True"]
    zoo = Zoo(tmp_path / "zoo")
    models = zoo.models()
    assert [model.name for model in models] == ["mine-1.1", "mine-2.1"], "rank 0 alone adds"
    assert [model.parent for model in models] == [None, models[0].model_id]
    begun, trained = json.loads(said[0][1].partition(" ")[2]), zoo.load(models[0].model_id)
    assert torch.equal(torch.tensor(begun[0]), trained["weight"])


FAILING = """
import os, torch, torch.distributed as dist
from pathlib import Path
from wattkeeper.live import Session
from wattkeeper.policies.errors import WattkeeperError
dist.init_process_group("gloo")
rank = dist.get_rank()
Path("notes").mkdir(exist_ok=True)
Path("notes/mine.txt").touch()
terms = dict(batch_sizes=(16, 32), default_batch_size=32, max_epochs=2, eta=0)

def train(how):
    with Session(how, **terms, configure="magic" if how == "begins" else "zeus") as session:
        if how == "script" and rank == 0:
            raise ValueError("no data")
        session.warm_start(torch.nn.Linear(4, 2), "notes" if how == "zoo" else "zoo")
        for epoch in session.epochs(range(4)):
            for _ in epoch:
                if how == "step" and rank == 0:
                    raise ValueError("bad batch")
                if how == "gone" and rank == 0:
                    os._exit(1)
            session.report(1.0)

for how in ("begins", "zoo", "script", "step", "well", "gone"):
    try:
        train(how)
        said = "done"
    except (WattkeeperError, ValueError) as error:
        said = f"{type(error).__name__}: {error}"
    with open(f"said.{rank}", "a") as file:
        print(how, said, file=file)
"""


@pytest.mark.slow
def test_no_process_waits_for_a_rank_0_that_failed(tmp_path: Path) -> None:
    """Nothing but the session can tell: no torchrun ends them, and rank 0 lives on."""
    pytest.importorskip("torch")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": f"{port}"}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", FAILING],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            env={**environment, "WORLD_SIZE": "2", "RANK": f"{rank}"},
        )
        for rank in (0, 1)
    ]
    finish(both[0], 1)
    finish(both[1], 0)
    own = [line.split() for line in (tmp_path / "said.0").read_text().splitlines()]
    assert [words[:2] for words in own] == [
        ["begins", "InputError:"],
        ["zoo", "StoreError:"],
        ["script", "ValueError:"],
        ["step", "ValueError:"],
        ["well", "done"],
    ]
    said = (tmp_path / "said.1").read_text()
    follows = "EnvironmentLacks: the process of rank 0, which decides for all,"
    for how, why in (
        ("begins", "failed: no configure policy 'magic'"),
        ("zoo", f"failed: {tmp_path / 'notes'}: no zoo"),
        ("script", "failed: ValueError: no data"),
        ("step", "failed: ValueError: bad batch"),
        ("gone", "is gone ("),
    ):
        assert f"{how} {follows} {why}" in said
    assert "\nwell done\n" in said


def test_processes_that_are_not_connected_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match=r"call torch.distributed.init_process_group\(\) before"):
        train(eta=0)
