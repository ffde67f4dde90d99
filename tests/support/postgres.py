"""A PostgreSQL server of a test's own, reached by a socket in a folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _program(name: str) -> str | None:
    if found := shutil.which(name):
        return found
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return str(installed[-1]) if installed else None


class Server:
    """Runs as a user that is not root, since it refuses to run as root."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data = folder, folder / "data"
        self.user = None
        if os.geteuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            self.user = "postgres" if "postgres" in names else "nobody"
            shutil.chown(folder, self.user)
        self._run(
            "initdb",
            "-D",
            self.data,
            "-U",
            "keeper",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
            "--locale=C",
        )

    @property
    def url(self) -> str:
        return f"postgresql://keeper@/postgres?host={self.folder}"

    def start(self) -> None:
        settings = f"-c listen_addresses= -c fsync=off -k {self.folder}"  # no machine crashes
        log = self.folder / "log"
        self._run("pg_ctl", "-D", self.data, "-l", log, "-o", settings, "-w", "-t", "120", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self.data, "-m", mode, "-w", "-t", "120", "stop")

    def _run(self, name: str, *arguments: str | Path) -> None:
        program = _program(name)
        assert program is not None
        done = subprocess.run(
            [program, *map(str, arguments)],
            user=self.user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if name == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, f"{name}: {done.stdout!r}, see {self.folder}/log"


@contextmanager
def server() -> Iterator[Server]:
    """A server that runs; skips the test where none is installed."""
    if not _program("initdb") or not _program("pg_ctl"):
        pytest.skip("no PostgreSQL server (initdb, pg_ctl) is installed: apt install postgresql")
    with tempfile.TemporaryDirectory(prefix="wk-pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        found = Server(folder)
        found.start()
        try:
            yield found
        finally:
            found.stop()
