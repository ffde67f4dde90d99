"""What the times of logs are: in UTC, on clocks whose zone is stated or not, or without a date."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.messages import assert_states
from wattkeeper.policies.errors import InputError
from wattkeeper.scenarios.inputs.electricity import find_origin_s
from wattkeeper.traces.formats import registry
from wattkeeper.traces.library import store
from wattkeeper.traces.library.importer import LATE
from wattkeeper.traces.library.local_times import TWICE
from wattkeeper.traces.readers.base import ImportOptions, JobsFormat, TimeMeaning
from wattkeeper.traces.times.zones import find_zone, offset_s, to_instants
from wattkeeper.traces.trace import Trace

SAMPLES = Path(__file__).parents[2] / "data" / "formats"
LOG = "JobID|Submit|Start|End|ElapsedRaw|AllocTRES\n"
ACCOUNTING = "job_id,user,gpu_num,state,submit_time,start_time,end_time,duration,"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
BERLIN = "Europe/Berlin"
SECOND_0 = "2024-10-01T00:00:00+00:00"
"""Of the logs below; in Berlin it is 02:00."""

WRITTEN = {
    "since-1970": "1727740800",
    "offset": "2024-10-01T02:00:00+02:00",
    "local": "2024-10-01 02:00:00",
    "relative": "12.5",
}
OBJECT = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "n", "uid": "u", "creationTimestamp": SECOND_0},
    "spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]},
    "status": {
        "phase": "Succeeded",
        "startTime": SECOND_0,
        "containerStatuses": [
            {
                "name": "m",
                "state": {
                    "terminated": {
                        "startedAt": SECOND_0,
                        "exitCode": 0,
                        "finishedAt": "2024-10-01T01:00:00Z",
                    }
                },
            }
        ],
    },
}
TEXTS: dict[str, Callable[[str], str]] = {
    "csv": lambda time: f"submit_time_s,duration_s,gpus\n{time},3600,1\n",
    "slurm": lambda time: f"{LOG}1|{time}|{time}||3600|gres/gpu=1\n",
    "helios": lambda time: f"{ACCOUNTING}vc\n1,u,1,COMPLETED,{time},{time},,3600,v\n",
    "acme": lambda time: f"{ACCOUNTING}type\n1,u,1,COMPLETED,{time},{time},,3600,v\n",
    "philly-csv": lambda time: f"{PHILLY}{time},3600,1,1,c\n",
    "philly-json": lambda time: json.dumps(
        [
            {
                "jobid": "a",
                "vc": "v",
                "user": "u",
                "status": "Pass",
                "submitted_time": time,
                "attempts": [
                    {
                        "start_time": time,
                        "end_time": "2024-10-01 03:00:00",
                        "detail": [{"ip": "m", "gpus": ["gpu0"]}],
                    }
                ],
            }
        ]
    ),
    "kubernetes": lambda time: json.dumps(OBJECT).replace(SECOND_0, time) + "\n",
}
RELATIVE = {
    "swf": ["swf.swf"],
    "gavel": ["gavel.trace"],
    "pai-2020": ["pai_simulator.csv"],
    "openb-2023": ["openb_pods.csv"],
    "spot-2026": ["spot_job_info_df.csv"],
}
MEANINGS = [
    (form.name, meaning)
    for form in registry().values()
    if isinstance(form, JobsFormat)
    for meaning in form.times
]

Put = Callable[..., Trace]


@pytest.fixture
def put(tmp_path: Path) -> Put:
    """Imports a text, or the sample of a format, and reads the trace."""

    def run(form: str, text: str = "", **options: Any) -> Trace:
        path = tmp_path / "log.csv"
        path.write_text(text, encoding="utf-8")
        paths = [path] if text else [SAMPLES / name for name in RELATIVE[form]]
        folder = tmp_path / "trace"
        asked = ImportOptions()._replace(**options)
        store.add(form, paths, folder=folder, replace=True, options=asked)
        return store.find(f"{folder}")

    return run


def test_a_number_is_of_one_meaning_in_each_format() -> None:
    for form in registry().values():
        if isinstance(form, JobsFormat):
            assert form.times
            assert not {"relative", "since-1970"} <= set(form.times)


@pytest.mark.parametrize(("name", "meaning"), MEANINGS)
def test_the_date_of_second_0(name: str, meaning: TimeMeaning, put: Put) -> None:
    """Whatever is in UTC stays where it is, with a zone beside it or without."""
    text = "" if name in RELATIVE else TEXTS[name](WRITTEN[meaning])
    trace = put(name, text)
    instant_s = datetime.fromisoformat(SECOND_0).timestamp()
    if meaning == "relative":
        with pytest.raises(InputError, match=r"no trace knows.*`origin"):
            find_origin_s(None, BERLIN, [trace])
        with pytest.raises(InputError, match=rf"--zone: {BERLIN}.* numbers of seconds.*`origin`"):
            put(name, text, zone=BERLIN)
    elif meaning == "local":
        with pytest.raises(InputError, match=r"second 0 is 2024-10-01 02:00:00.*`zone: Europe"):
            find_origin_s(None, None, [trace])
        assert find_origin_s(None, BERLIN, [trace]) == instant_s
        assert find_origin_s(None, "+02:00", [trace]) == instant_s
        known = put(name, text, zone=BERLIN)
        assert find_origin_s(None, None, [known]) == instant_s
    else:
        assert find_origin_s(None, None, [trace]) == instant_s
        assert find_origin_s(None, "UTC", [trace]) == instant_s
        with pytest.raises(InputError, match=rf"zone: {BERLIN}.*2024-10-01 00:00:00 in UTC.*out"):
            find_origin_s(None, BERLIN, [trace])
        with pytest.raises(InputError, match=rf"--zone: {BERLIN}.*(offset|1970).*leave the zone"):
            put(name, text, zone=BERLIN)
        assert find_origin_s(None, None, [put(name, text, zone="UTC")]) == instant_s


@pytest.mark.parametrize("name", ["csv", "slurm", "helios", "acme", "philly-csv"])
def test_dates_with_and_without_an_offset_are_not_of_one_kind(name: str, put: Put) -> None:
    times = ("2024-10-01 02:00:00+02:00", "2024-10-01 03:00:00", "2024-10-01T01:00:00Z")
    (header, _), *_ = logs = [TEXTS[name](time).splitlines() for time in times]
    text = "\n".join([header, *(row for _, row in logs), ""])
    with pytest.raises(InputError) as caught:
        put(name, text)
    assert_states(str(caught.value), "line 3", "2024-10-01 03:00:00", "with their offset from UTC")
    assert "line 2:" not in str(caught.value)


def test_numbers_among_dates_do_not_make_a_log_dated(put: Put) -> None:
    """Of two numbers and a date, the date is malformed, and second 0 has none."""
    text = "submit_time_s,gpus\n10,1\n20,1\n2024-10-01,1\n"
    folder = put("csv", text.replace("2024-10-01,1\n", ""))
    assert folder.quality["time_origin"] == "the first submission, 10 s in the file"
    with pytest.raises(InputError, match=r"line 4: submit_time_s is '2024-10-01', the others"):
        put("csv", text)


def test_numbers_in_milliseconds_are_a_doubt_of_formats_without_dates_too(put: Put) -> None:
    row = "1 1704067200000 0 60 1 -1 -1 1 -1 -1 1 1 1 -1 1 -1 -1 -1\n"
    assert put("swf", row).quality["doubts"] == {LATE: 1}


SPRING = ("2024-03-31 01:30:00", "2024-03-31 03:30:00")
AUTUMN = ("2024-10-27 01:30:00", "2024-10-27 02:30:00", "2024-10-27 03:30:00")


def jobs_at(*times: str) -> str:
    return "submit_time_s,duration_s,gpus\n" + "".join(f"{time},60,1\n" for time in times)


def submissions(trace: Trace) -> list[float]:
    return [float(time_s) for time_s in trace.tables["jobs"]["submit_time_s"].to_pylist()]


def test_a_local_log_across_both_changes_of_the_clocks(put: Put) -> None:
    """With its zone, seconds are those that passed; without, those that clocks show."""
    assert submissions(put("csv", jobs_at(*SPRING))) == [0, 7200]
    spring = put("csv", jobs_at(*SPRING), zone=BERLIN)
    assert submissions(spring) == [0, 3600]
    assert (
        find_origin_s(None, None, [spring])
        == datetime.fromisoformat("2024-03-31T01:30:00+01:00").timestamp()
    )
    autumn = put("csv", jobs_at(*AUTUMN), zone=BERLIN)
    assert submissions(autumn) == [0, 3600, 10800]
    assert autumn.quality["doubts"] == {TWICE: 1}
    with pytest.raises(InputError) as caught:
        put("csv", jobs_at("2024-03-31 01:00:00", "2024-03-31 02:30:00"), zone=BERLIN)
    assert_states(str(caught.value), "line 3", "submit_time_s is 2024-03-31 02:30:00", BERLIN)


def test_a_start_is_not_before_its_submission_as_clocks_are_set_back(put: Put) -> None:
    text = f"{LOG}1|2024-10-27T02:50:00|2024-10-27T02:10:00||60|gres/gpu=1\n"
    assert "early" not in str(put("slurm", text, zone=BERLIN).quality["doubts"])
    jobs = put("slurm", text, zone=BERLIN).tables["jobs"]
    assert jobs["start_time_s"].to_pylist() == [1200]


def test_a_zone_of_a_scenario_needs_the_log_on_one_side_of_a_change(put: Put) -> None:
    local = put("csv", jobs_at(*SPRING))
    with pytest.raises(InputError, match=r"clocks in Europe/Berlin are set within.*--zone.*origin"):
        find_origin_s(None, BERLIN, [local])
    assert (
        find_origin_s(None, "Africa/Lagos", [local])
        == datetime.fromisoformat("2024-03-31T00:30:00+00:00").timestamp()
    )
    for time, shown in (("2024-03-31 02:30:00", "never"), ("2024-10-27 02:30:00", "twice")):
        with pytest.raises(InputError, match=rf"{time}, which clocks in {BERLIN} show {shown}"):
            find_origin_s(None, BERLIN, [put("csv", jobs_at(time))])


def test_a_trace_of_an_earlier_version_may_have_had_offsets(put: Put) -> None:
    trace = put("csv", jobs_at("2024-03-31"))
    quality = {
        "time_origin": "the first submission, 2024-03-31 00:00:00 (the file's clock; UTC "
        "where it gives offsets)"
    }
    object.__setattr__(trace, "quality", quality)
    for zone in (None, BERLIN):
        with pytest.raises(InputError, match=r"import the log again, or state"):
            find_origin_s(None, zone, [trace])


@pytest.mark.parametrize(
    ("times", "options", "kept"),
    [
        (("2024-10-01 01:00:00", "2024-10-01 03:00:00"), {"since": "2024-10-01 02:00"}, 1),
        (
            ("2024-10-01 01:00:00", "2024-10-01 03:00:00"),
            {"since": "2024-10-01T00:00Z", "zone": BERLIN},
            1,
        ),
        (
            ("2024-10-01 01:00:00", "2024-10-01 03:00:00"),
            {"since": "2024-10-01 02:00", "zone": BERLIN},
            1,
        ),
        (("2024-10-01T01:00Z", "2024-10-01T03:00Z"), {"since": "2024-10-01T03:30+02:00"}, 1),
        (("2024-10-01T01:00+02:00", "2024-10-01T03:00+02:00"), {"since": "2024-10-01"}, 1),
        (("2024-10-01", "2024-10-02"), {"since": "2024-10-01T00:00Z"}, "--zone"),
        (("2024-10-01T00:00Z", "2024-10-02T00:00Z"), {"since": "3"}, "dates"),
        (("2024-04-01", "2024-04-02"), {"since": "2024-03-31 02:30", "zone": BERLIN}, "never"),
    ],
)
def test_limits_of_a_log(
    put: Put, times: tuple[str, ...], options: dict[str, str], kept: int | str
) -> None:
    if isinstance(kept, int):
        assert put("csv", jobs_at(*times), **options).quality["kept"] == kept
        return
    with pytest.raises(InputError, match=rf"--from.*{kept}"):
        put("csv", jobs_at(*times), **options)


ZONES = st.sampled_from(
    [BERLIN, "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kolkata", "UTC", "+05:45", "-0330"]
)


@settings(max_examples=examples(200), deadline=None)
@given(ZONES, st.integers(0, 4_000_000_000))
def test_what_clocks_show_at_an_instant_means_that_instant(name: str, instant_s: int) -> None:
    zone = find_zone(name)
    shown_s = instant_s + offset_s(zone, instant_s)
    found = to_instants(np.array([float(shown_s)]), zone)
    assert instant_s in (found.first_s[0], found.last_s[0])
    assert not found.is_never[0]
    assert found.is_twice[0] == (found.first_s[0] != found.last_s[0])
