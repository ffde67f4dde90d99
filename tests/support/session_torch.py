"""A small network that a session trains, with its state kept."""

from __future__ import annotations

import time
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

from wattkeeper.live import Session


def main(store: str, log: Path, epoch_s: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    with Session(
        "net", batch_sizes=(8, 16), default_batch_size=16, max_epochs=8, eta=0, store=store
    ) as session:
        model = nn.Linear(4, 1)
        optimizer = torch.optim.Adam(model.parameters(), session.learning_rate(0.01, "square-root"))
        goes_on = session.keep(model=model, optimizer=optimizer)
        steps = optimizer.state_dict()["state"][0]["step"].item() if goes_on else 0
        say(log, f"begun {session.assignment.epochs_done} {steps:g}")
        loader = DataLoader(data, session.batch_size)
        for epoch in session.epochs(loader):
            for inputs, wanted in epoch:
                optimizer.zero_grad()
                mse_loss(model(inputs), wanted).backward()
                optimizer.step()
                time.sleep(epoch_s / len(loader))
            say(log, f"epoch {epoch.number}")
    say(log, f"ended {session.outcome.cause} {session.outcome.time_s}")


def say(log: Path, line: str) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(line + "\n")
