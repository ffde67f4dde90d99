"""Import formats: a contract that all keep, and the two of Zeus on recorded data."""

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.messages import assert_states
from tests.support.traces import import_trace
from wattkeeper.policies.errors import InputError, Problem, TraceError
from wattkeeper.traces import formats
from wattkeeper.traces.formats import registry
from wattkeeper.traces.trace import Trace

SHARED = Path(__file__).resolve().parents[4] / "shared"
PROFILES = SHARED / "data" / "zeus-nsdi23"
GROUPS = SHARED / "reference" / "zeus" / "overlapping_groups.csv.gz"

recorded = pytest.mark.skipif(not PROFILES.is_dir(), reason="the recorded Zeus traces are not here")
grouped = pytest.mark.skipif(not GROUPS.is_file(), reason="the Zeus groups are not here")

TRAIN = """dataset,network,batch_size,optimizer,learning_rate,run,target_metric,target_epoch
squad,bert,8,adamw,1e-1,1,84.0,4
squad,bert,8,adamw,1e-1,2,84.0,nan
squad,bert,16,adamw,1e-1,1,84.0,5.0
"""
POWER = """dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power
squad,bert,16,adamw,100,10.5,80
squad,bert,16,sgd,100,9,80
squad,bert,8,adamw,100,11,80
"""
JOBS = """group,start_time,end_time,dataset,runtime_ratio,synthetic_load
b,5,9,squad,1.5,0.1
a,0,4,cifar100,1,0.1
b,7,8,squad,0.5,0.1
a,5,5,cifar100,2,0.1
"""


def folder(tmp_path: Path, train: str = TRAIN, **power: str) -> Path:
    (tmp_path / "summary_train.csv").write_text(train)
    for gpu, text in (power or {"v100": POWER}).items():
        (tmp_path / f"summary_power_{gpu}.csv").write_text(text)
    return tmp_path


def groups(tmp_path: Path, text: str) -> Trace:
    path = tmp_path / "my groups.csv"
    path.write_text(text)
    return import_trace("zeus-groups", [path])


def test_the_registry_lists_every_module() -> None:
    here = Path(formats.__file__).parent
    found = (*here.glob("[a-z]*.py"), *(path.parent for path in here.glob("[a-z]*/__init__.py")))
    modules = {path.stem.replace("_", "-") for path in found}
    assert set(registry()) - modules == {"csv"}
    assert len(registry()) == len(modules)


@pytest.mark.parametrize("name", registry())
def test_contract(name: str, tmp_path: Path) -> None:
    form = registry()[name]
    assert form.name == name
    assert form.summary
    assert "\n" not in form.summary
    assert form.takes
    empty = tmp_path / "empty"
    empty.mkdir()
    junk = tmp_path / "summary_train.csv"
    junk.write_bytes(bytes(range(256)))
    for paths in ([], [empty], [tmp_path / "none"], [junk], [junk, junk], [empty, empty]):
        with pytest.raises(InputError) as caught:
            import_trace(name, paths)
        assert str(caught.value)


def test_an_unknown_format_lists_what_there_is() -> None:
    with pytest.raises(InputError, match=r"'x'[\s\S]* acme: "):
        import_trace("x", [Path()])


def test_profiles_of_a_small_folder(tmp_path: Path) -> None:
    trace = import_trace("zeus-nsdi23", [folder(tmp_path, a40=POWER, v100=POWER)], name="mine")
    assert (trace.name, trace.kind, trace.origin) == ("mine", "profiles", "recorded")
    tables = {name: table.to_pylist() for name, table in trace.tables.items()}
    assert [row["epochs"] for row in tables["convergence"]] == [4, None, 5]
    assert [row["workload"] for row in tables["profiles"]] == ["squad", "squad-sgd", "squad"] * 2
    assert [row["gpu_type"] for row in tables["profiles"]] == ["A40"] * 3 + ["V100"] * 3
    assert tables["workloads"][0] == {
        "workload": "squad",
        "dataset": "squad",
        "network": "bert",
        "optimizer": "adamw",
        "target": 84.0,
        "higher_is_better": True,
        "max_epochs": 6,
        "default_batch_size": 32,
        "samples_per_epoch": 88_524,
        "metric": None,
    }
    assert [row["workload"] for row in tables["workloads"]] == ["squad", "squad-sgd"]
    assert set(trace.inputs) == {path.name for path in tmp_path.iterdir()}
    notes = "\n".join(trace.notes)
    assert_states(notes, "summary_train.csv: learning_rate", "without convergence: squad-sgd")
    listed = import_trace("zeus-nsdi23", sorted(tmp_path.iterdir()), name="mine")
    assert listed.tables == trace.tables


@pytest.mark.parametrize(
    ("train", "power", "facts"),
    [
        (TRAIN.replace("squad", "mnist"), POWER, "data set 'mnist'|target"),
        (TRAIN, POWER + "squad,gpt,8,sgd,100,1,1\n", "two networks|'squad-sgd'"),
        (TRAIN, POWER + "squad,bert,8,adamw,100,1,1\n", "summary_power_v100.csv, row 4: repeats"),
        (TRAIN, POWER + "squad,bert,8,adamw,125,0,1\n", "row 4: time_per_epoch is 0.0|> 0"),
        (TRAIN + "squad,bert,8,adamw,1,3,84,0\n", POWER, "summary_train.csv, row 4: target_epoch"),
    ],
)
def test_wrong_profiles(tmp_path: Path, train: str, power: str, facts: str) -> None:
    with pytest.raises(TraceError) as caught:
        import_trace("zeus-nsdi23", [folder(tmp_path, train, v100=power)])
    assert_states(str(caught.value), *facts.split("|"))


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    path = folder(tmp_path)
    other = path / "other.csv"
    other.touch()
    for paths, expected in (
        ([path / "summary_train.csv"], "no summary_power_<gpu>.csv"),
        ([path / "summary_power_v100.csv"], "0 files summary_train.csv"),
        ([path, other], "other.csv: is not one of"),
        ([path, path], "a second power table for V100"),
    ):
        with pytest.raises(TraceError) as caught:
            import_trace("zeus-nsdi23", paths)
        assert expected in str(caught.value)


def test_jobs_of_a_small_file(tmp_path: Path) -> None:
    trace = groups(tmp_path, JOBS)
    assert (trace.name, trace.kind, trace.origin) == ("my-groups", "jobs", "modelled")
    rows = trace.tables["jobs"].to_pylist()
    assert [row["job_id"] for row in rows] == ["a/1", "b/1", "a/2", "b/2"]
    assert [row["submit_time_s"] for row in rows] == [0, 5, 5, 7]
    assert [row["duration_s"] for row in rows] == [4, 4, 0, 1]
    assert [row["time_scale"] for row in rows] == [1, 1.5, 2, 0.5]
    assert {row["gpus"] for row in rows} == {1}
    assert "Unused columns: synthetic_load." in trace.notes


def test_all_malformed_jobs_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(TraceError) as caught:
        groups(tmp_path, JOBS + "a,4,6,squad,1,1\nc,9,8,squad,1,1\n")
    first, second = caught.value.problems
    assert first.where.endswith("row 5")
    assert_states(first.message, "start_time 4.0 is before 5.0", "group 'a'")
    assert second.where.endswith("row 6")
    assert_states(second.message, "end_time 8.0 ", "start_time 9.0")


@settings(
    max_examples=examples(200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_damaged_files_raise_only_trace_errors(tmp_path: Path, data: st.DataObject) -> None:
    def damage(text: str) -> bytes:
        content = bytearray(text.encode())
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(content)))
            content[at : at + data.draw(st.integers(0, 3))] = data.draw(
                st.sampled_from([b"", b",", b"\n", b'"', b"-", b"9", b"nan", b"a", b"\xff"])
            )
        return bytes(content)

    for name, text in (("train", TRAIN), ("power_v100", POWER), ("jobs", JOBS)):
        (tmp_path / f"summary_{name}.csv").write_bytes(damage(text))
    paths: Sequence[Path] = [tmp_path / "summary_train.csv", tmp_path / "summary_power_v100.csv"]
    for form, files in (("zeus-nsdi23", paths), ("zeus-groups", [tmp_path / "summary_jobs.csv"])):
        problems: Sequence[Problem] = ()
        try:
            import_trace(form, files)
        except TraceError as error:
            problems = error.problems
        assert all(problem.where for problem in problems)


@recorded
def test_recorded_profiles() -> None:
    trace = import_trace("zeus-nsdi23", [PROFILES])
    rows = {name: table.num_rows for name, table in trace.tables.items()}
    assert rows == {"profiles": 1609, "convergence": 3759, "workloads": 7}
    assert trace.tables["convergence"]["epochs"].null_count == 849
    kinds = trace.tables["profiles"]["gpu_type"].value_counts().to_pylist()
    assert {kind["values"]: kind["counts"] for kind in kinds} == {
        "A40": 453,
        "P100": 270,
        "RTX6000": 410,
        "V100": 476,
    }
    defaults = trace.tables["workloads"].select(["workload", "default_batch_size"]).to_pydict()
    assert dict(zip(*defaults.values(), strict=True)) == {
        "cifar100": 1024,
        "imagenet": 256,
        "librispeech": 192,
        "movielens-1m": 1024,
        "squad": 32,
        "sentiment140": 128,
        "cifar100-adam": 1024,
    }


@grouped
def test_groups_of_zeus(tmp_path: Path) -> None:
    trace = import_trace("zeus-groups", [GROUPS])
    jobs = trace.tables["jobs"]
    assert (trace.name, jobs.num_rows) == ("overlapping_groups", 6316)
    assert len(jobs["group_id"].unique()) == 72
    submits = jobs["submit_time_s"].to_pylist()
    assert submits == sorted(submits)
    plain = tmp_path / "overlapping_groups.csv"
    plain.write_bytes(gzip.decompress(GROUPS.read_bytes()))
    assert import_trace("zeus-groups", [plain]).tables["jobs"].equals(jobs)
