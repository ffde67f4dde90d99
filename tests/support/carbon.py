"""Recorded series of carbon intensity and the profile of the Chase reference, from `shared`."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from wattkeeper.policies.arrays import Floats
from wattkeeper.policies.profile import Curve


def read_hist(shared: Path) -> Floats:
    """The column `hist` of the MISO series, g/kWh by half hour."""
    with (shared / "data/carbon/miso_2022-10.csv").open(newline="") as file:
        return np.array([float(row["hist"]) for row in csv.DictReader(file)])


def read_year(shared: Path, country: str) -> Floats:
    """Carbon intensity of `de` or `nl` in 2022, g/kWh by quarter of an hour."""
    path = shared / f"data/carbon/{country}_2022.parquet"
    return np.asarray(pq.read_table(path)["carbon_intensity"].to_numpy())


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read_curve(shared: Path, batch_size: int = 128) -> Curve:
    """ResNet-50 on ImageNet on an A40, 16 epochs."""
    rows = [
        row
        for row in read_rows(shared / "data/zeus-nsdi23/summary_power_a40.csv")
        if (row["dataset"], row["network"]) == ("imagenet", "resnet50")
        and int(row["batch_size"]) == batch_size
    ]
    rows.sort(key=lambda row: float(row["power_limit"]))
    return Curve(
        batch_size,
        tuple(float(row["power_limit"]) for row in rows),
        tuple(float(row["time_per_epoch"]) for row in rows),
        tuple(float(row["average_power"]) for row in rows),
        (16.0,),
    )
