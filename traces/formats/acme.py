"""Jobs of Shanghai AI Lab's Acme clusters (2023): ``trace_seren.csv`` or ``trace_kalos.csv``.

``job_id``, ``user``, ``node_num``, ``gpu_num``, ``cpu_num``, ``type`` (stage of the development of
a language model), ``state``, ``submit_time``, ``start_time``, ``end_time``, ``duration`` (s),
``queue`` (s in the queue), ``gpu_time`` (s); Kalos also has ``mem_per_pod_GB``,
``shared_mem_per_pod``, ``fail_time`` and ``stop_time``. Read are those that `_accounting` names.
"""

from typing import Final

from wattkeeper.traces.readers.accounting_rows import COLUMNS, convert
from wattkeeper.traces.readers.base import JobsFormat
from wattkeeper.traces.readers.textfile import has_header, one_log

FORMAT: Final = JobsFormat(
    name="acme",
    summary="Acme (2023): trace_seren.csv or trace_kalos.csv",
    takes="one of these files, plain or gzip",
    source=(
        "Hu et al., Characterization of Large Language Model Development in the Datacenter, "
        "NSDI 2024 (InternLM/AcmeTrace)"
    ),
    licence="as InternLM/AcmeTrace states it",
    time_unit="dates with offset from UTC; durations in s",
    times=("offset", "local"),
    cannot_tell=(
        "Which model a job trained: its type is a stage of development and is left out.",
        "Which queue it was in, how long its user expected it to run, and which jobs recur.",
        "In Kalos, why the recorded duration of some jobs is longer than from start to end: it is "
        "kept as it is recorded.",
    ),
    sniff=has_header(*COLUMNS, "type", "gpu_time"),
    batches=one_log("trace_seren.csv or trace_kalos.csv", needed=(*COLUMNS, "type")),
    convert=convert,
    headers=True,
)
