"""Jobs of SenseTime's Helios clusters (2020): ``cluster_log.csv`` of one of them.

``job_id``, ``user``, ``vc``, ``jobname`` (in some releases), ``gpu_num``, ``cpu_num``,
``node_num``, ``state``, ``submit_time``, ``start_time``, ``end_time``, ``duration`` (s), ``queue``
(s in the queue). Read are those that `_accounting` names, and ``vc``.
"""

from typing import Final

from wattkeeper.traces.readers.accounting_rows import COLUMNS, convert
from wattkeeper.traces.readers.base import JobsFormat
from wattkeeper.traces.readers.textfile import has_header, one_log

FORMAT: Final = JobsFormat(
    name="helios",
    summary="Helios (2020): cluster_log.csv of Earth, Saturn, Uranus or Venus",
    takes="one cluster_log.csv, plain or gzip",
    source=(
        "Hu et al., Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU "
        "Datacenters, SC 2021 (S-Lab-System-Group/HeliosData)"
    ),
    licence="as S-Lab-System-Group/HeliosData states it",
    time_unit="dates without offset; durations in s",
    cannot_tell=(
        "What a job trained, on which model of GPU, and which jobs recur.",
        "How long its user expected it to run.",
        "The zone of its dates.",
    ),
    sniff=has_header(*COLUMNS, "vc"),
    batches=one_log("cluster_log.csv", needed=(*COLUMNS, "vc")),
    convert=convert,
    times=("local", "offset"),
    headers=True,
)
