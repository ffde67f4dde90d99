"""Downloads of well-known traces: by the command, from a real server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import random
import re
import socket
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.conftest import Command
from tests.support.messages import assert_states
from wattkeeper.traces.formats import registry
from wattkeeper.traces.library.catalogue import WELL_KNOWN

JOBS = [
    {
        "status": "Pass",
        "vc": "ee9e8c",
        "jobid": f"application_1506638472019_{number}",
        "attempts": [
            {
                "start_time": "2017-10-07 01:12:09",
                "end_time": "2017-10-07 01:13:23",
                "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
            }
        ],
        "submitted_time": "2017-10-07 01:11:39",
        "user": "ce2f4c",
    }
    for number in range(5)
]
MEMBERS = {
    "trace-data/cluster_gpu_util": random.Random(1).randbytes(300_000),
    "trace-data/cluster_job_log": json.dumps(JOBS).encode(),
    "trace-data/cluster_machine_list": b"machineId,number of GPUs,single GPU mem\nm47,8,24GB\n",
}


def tar(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    packed = gzip.GzipFile(fileobj=out, mode="wb", mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w") as tape:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tape.addfile(info, io.BytesIO(data))
    return out.getvalue()


class Server(ThreadingHTTPServer):
    """Serves `files` by path, and keeps what was asked.

    `limits`: for each request in turn, after how many bytes of the body the connection breaks.
    """

    files: dict[str, bytes]
    limits: list[int]
    asked: list[tuple[str, str | None]]
    etag: str | None = '"v1"'
    ranges = True
    lengths = True

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}{path}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.close_connection = True
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path, wanted))
        if self.path.startswith("/moved/"):
            self.send_response(302)
            self.send_header("Location", self.path.removeprefix("/moved"))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if self.path.startswith("/ftp/"):
            self.send_response(302)
            self.send_header("Location", "ftp://127.0.0.1/x")
            self.end_headers()
            return
        if self.path not in self.server.files:
            self.send_error(404)
            return
        self.answer(self.server.files[self.path], wanted)

    def answer(self, data: bytes, wanted: str | None) -> None:
        same = self.headers.get("If-Range") == self.server.etag
        found = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        start = int(found[1]) if found and same and self.server.ranges else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if self.server.etag:
            self.send_header("ETag", self.server.etag)
        if self.server.lengths:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        body = data[start:]
        limit = self.server.limits.pop(0) if self.server.limits else len(body)
        self.wfile.write(body[:limit])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    made = Server(("127.0.0.1", 0), Handler)
    made.files, made.limits, made.asked = {"/t.tar.gz": tar(MEMBERS)}, [], []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


Fetch = Callable[..., str]


@pytest.fixture
def philly(server: Server, command: Command) -> Fetch:
    """`wattkeeper traces fetch philly` from the local server: its whole output."""

    def run(*options: str, path: str = "/t.tar.gz", code: int = 0, check: bool = True) -> str:
        digest = hashlib.sha256(server.files.get(path.removeprefix("/moved"), b"")).hexdigest()
        stated = ("--sha256", digest) if check else ()
        url = ("--url", server.url(path))
        done = command("traces", "fetch", "philly", *url, *stated, *options, code=code)
        return done.stdout + done.stderr

    return run


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in (folder / "library/.downloads/philly").glob("*"))


def test_the_list_names_address_licence_and_digest(command: Command) -> None:
    text = command("traces", "fetch").stdout
    for known in WELL_KNOWN.values():
        assert f"{known.name}: " in text
        assert known.licence in text
        for file in known.files:
            assert file.url in text
            assert file.sha256 is None or file.sha256 in text
    assert "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c" in text
    assert "sha256 unknown" in text


def test_the_catalogue_is_consistent() -> None:
    for name, known in WELL_KNOWN.items():
        assert known.format in registry()
        assert known.name == name
        names = [file.url.rsplit("/", 1)[-1] for file in known.files]
        assert len(set(names)) == len(names) >= 1
        for file in known.files:
            assert file.url.startswith("https://")
            assert file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256)
            assert bool(file.members) == file.url.endswith((".tar.gz", ".zip"))


def test_fetch_downloads_unpacks_imports_and_cleans_up(philly: Fetch, tmp_path: Path) -> None:
    text = philly()
    assert "(as stated)" in text
    assert "\r" not in text
    assert "\x1b" not in text
    meta = json.loads((tmp_path / "library/philly/trace.json").read_text())
    assert meta["tables"]["jobs"]["rows"] == 5
    assert meta["inputs"]["trace-data.tar.gz"] == hashlib.sha256(tar(MEMBERS)).hexdigest()
    assert "cluster_job_log" in meta["inputs"]
    assert any("Fetched from http://127.0.0.1" in note for note in meta["notes"])
    assert not (tmp_path / "library/.downloads/philly").exists()


def test_what_was_fetched_is_a_trace_of_the_library(philly: Fetch, command: Command) -> None:
    philly("--name", "mine")
    assert "mine" in command("traces", "list").stdout
    command("traces", "describe", "mine")


def test_an_interrupted_download_is_resumed(server: Server, philly: Fetch, tmp_path: Path) -> None:
    size = len(server.files["/t.tar.gz"])
    server.limits = [100_000, 50_000]
    assert_states(philly(code=3), f"100,000 of {size:,} bytes", "the same command")
    assert leftovers(tmp_path) == ["trace-data.tar.gz.json", "trace-data.tar.gz.part"]
    assert_states(philly(code=3), f"150,000 of {size:,} bytes")
    assert "(as stated)" in philly()
    assert [wanted for _, wanted in server.asked] == [None, "bytes=100000-", "bytes=150000-"]


@pytest.mark.parametrize("why", ["no ranges", "no validator", "changed"])
def test_a_failed_resume_restarts(server: Server, philly: Fetch, why: str) -> None:
    server.limits = [100_000]
    server.etag = None if why == "no validator" else '"v1"'
    philly(code=3)
    if why == "changed":
        server.etag = '"v2"'
        server.files["/t.tar.gz"] = tar({"trace-data/new": b"", **MEMBERS})
    server.ranges = why != "no ranges"
    assert "(as stated)" in philly()


def test_a_body_without_a_length_is_checked_by_its_digest(server: Server, philly: Fetch) -> None:
    server.lengths = False
    philly()
    server.limits = [100_000]
    assert "was removed" in philly("--replace", code=2)


def test_a_wrong_digest_removes_the_file(philly: Fetch, tmp_path: Path) -> None:
    text = philly("--sha256", "0" * 64, check=False, code=2)
    assert re.search(r"has sha256 [0-9a-f]{64}, not 0{64}", text)
    assert len(text.strip().splitlines()) == 1
    assert leftovers(tmp_path) == ["trace-data.tar.gz.json"]
    assert not (tmp_path / "library/philly").exists()


def test_the_known_size_and_digest_hold_for_another_address(server: Server, philly: Fetch) -> None:
    size = len(server.files["/t.tar.gz"])
    assert_states(philly(check=False, code=2), f"{size:,} bytes", "not 1,055,988,361")


def test_missing_files_and_closed_ports_say_what_to_do(
    server: Server, philly: Fetch, command: Command
) -> None:
    text = philly(path="/nothing", check=False, code=3)
    assert_states(
        text,
        server.url("/nothing"),
        "404 Not Found",
        "by hand",
        "wattkeeper traces import philly-json",
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/t.tar.gz"
        text = command("traces", "fetch", "philly", "--url", url, code=3).stderr
    assert_states(text, f"{url}: ", "Connection refused", "by hand")


def test_follows_redirections_but_not_to_other_schemes(server: Server, philly: Fetch) -> None:
    philly(path="/moved/t.tar.gz")
    assert [path for path, _ in server.asked] == ["/moved/t.tar.gz", "/t.tar.gz"]
    assert_states(philly("--replace", path="/ftp/x", code=3), "cannot be reached", "ftp\n")


@pytest.mark.parametrize(
    "url",
    ["ftp://host/x", "file:///etc/passwd", "x.csv", "http://", "http://u:p@host/", "http://h:x/"],
)
def test_only_http_addresses(command: Command, url: str) -> None:
    done = command("traces", "fetch", "philly", "--url", url, code=2)
    assert_states(done.stderr, url, "allowed", "http://HOST/PATH")


@pytest.mark.parametrize(
    "name", ["../cluster_job_log", "/tmp/cluster_job_log", "a/../../cluster_job_log"]
)
@pytest.mark.parametrize("pack", ["tar", "zip"])
def test_members_cannot_leave_the_folder(
    server: Server, philly: Fetch, tmp_path: Path, name: str, pack: str
) -> None:
    if pack == "tar":
        server.files["/t.tar.gz"] = tar({name: b"[]"})
    else:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as packed:
            packed.writestr(name, b"[]")
        server.files["/t.tar.gz"] = out.getvalue()
    before = {p for p in tmp_path.rglob("*") if ".downloads" not in p.parts}
    assert_states(philly(code=2), "member", "unsafe path")
    after = {p for p in tmp_path.rglob("*") if ".downloads" not in p.parts}
    assert {p.name for p in after - before} <= {"library"}


def test_links_in_an_archive_are_not_followed(server: Server, philly: Fetch) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tape:
        link = tarfile.TarInfo("trace-data/cluster_job_log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tape.addfile(link)
    server.files["/t.tar.gz"] = out.getvalue()
    assert_states(philly(code=2), "no member cluster_job_log")


def test_broken_archives_are_named(server: Server, philly: Fetch) -> None:
    server.files["/t.tar.gz"] = b"no archive at all"
    assert_states(philly(code=2), "tar", "zip")
    server.files["/t.tar.gz"] = tar(MEMBERS)[:200_000]
    assert_states(philly(code=2), "broken archive")


def test_zip_archives_are_unpacked(server: Server, philly: Fetch) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in MEMBERS.items():
            packed.writestr(name, data)
    server.files["/t.tar.gz"] = out.getvalue()
    philly()


def test_a_failed_import_keeps_the_download(
    server: Server, philly: Fetch, command: Command, tmp_path: Path
) -> None:
    bad = [{**JOBS[0], "submitted_time": "yesterday"}, *JOBS[1:]]
    server.files["/t.tar.gz"] = tar(
        {**MEMBERS, "trace-data/cluster_job_log": json.dumps(bad).encode()}
    )
    assert "yesterday" in philly(code=2)
    assert not (tmp_path / "library/philly").exists()
    philly("--skip-bad")
    assert len(server.asked) == 1
    quality = json.loads((tmp_path / "library/philly/trace.json").read_text())["quality"]
    assert (quality["rows"], quality["wrong"]) == (5, 1)


def test_an_existing_name_is_refused_before_a_download(server: Server, philly: Fetch) -> None:
    philly()
    assert "--replace" in philly(code=2)
    assert len(server.asked) == 1


def test_a_changed_file_is_reported(server: Server, philly: Fetch) -> None:
    philly()
    server.files["/t.tar.gz"] = tar({"trace-data/new": b"", **MEMBERS})
    assert "has changed" in philly("--replace")
    assert "has changed" not in philly("--replace")


def test_several_files_come_from_a_folder(
    server: Server, command: Command, shared: Path, tmp_path: Path
) -> None:
    for path in (shared / "data/zeus-nsdi23").glob("*.csv"):
        server.files[f"/zeus/{path.name}"] = path.read_bytes()
    command("traces", "fetch", "zeus-nsdi23", "--url", server.url("/zeus/"))
    command("traces", "import", "zeus-nsdi23", shared / "data/zeus-nsdi23", "--name", "local")
    fetched, local = tmp_path / "library/zeus-nsdi23", tmp_path / "library/local"
    for table in local.glob("*.parquet"):
        assert (fetched / table.name).read_bytes() == table.read_bytes()
    one = command("traces", "fetch", "zeus-nsdi23", "--replace", "--sha256", "0" * 64, code=2)
    assert_states(one.stderr, "--sha256", "summary_train.csv, summary_power_a40.csv")


def test_unverified_digests_are_reported(server: Server, command: Command, tmp_path: Path) -> None:
    unstated = [k for k in WELL_KNOWN.values() if not any(f.sha256 for f in k.files)]
    assert unstated
    if "swf" not in registry():
        pytest.skip("format swf is not there")
    job = "1 0 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n"
    server.files["/log.swf"] = f"; MaxNodes: 128\n{job}".encode()
    done = command("traces", "fetch", "sdsc-sp2", "--url", server.url("/log.swf"))
    digest = hashlib.sha256(server.files["/log.swf"]).hexdigest()
    assert_states(done.stdout, f"sha256 {digest} ", "no digest is stated")


def test_wrong_arguments(command: Command) -> None:
    for arguments, facts in (
        (("nothing",), "'nothing'|philly,"),
        (("--replace",), "NAME"),
        (("philly", "--sha256", "x"), "'x'|64 hexadecimal"),
        (("zeus-nsdi23", "--skip-bad"), "zeus-nsdi23|no rows to skip"),
    ):
        message = command("traces", "fetch", *arguments, code=2).stderr
        assert_states(message, *facts.split("|"))
