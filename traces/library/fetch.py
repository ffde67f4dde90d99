"""Download of well-known traces into the library.

Downloads are stored in ``.downloads/NAME`` of the library until their import has succeeded: an
interrupted one is resumed (HTTP ranges, if the file has not changed), and a complete one is not
repeated; one without a stated digest that cannot be read is removed. Only http and https, through
the proxies of the environment. One module, since resuming, checking and removing decide on each
other's leftovers.
"""

import io
import json
import lzma
import re
import shutil
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from gzip import BadGzipFile
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from wattkeeper.policies.errors import SHOWN as MOST_PROBLEMS
from wattkeeper.policies.errors import EnvironmentLacks, InputError, Problem, TraceError
from wattkeeper.traces.files.atomic import move_file
from wattkeeper.traces.files.digests import digest_file
from wattkeeper.traces.files.locks import lock
from wattkeeper.traces.files.names import check_name
from wattkeeper.traces.files.private import check_own_folder
from wattkeeper.traces.files.user_dirs import library_folder
from wattkeeper.traces.formats import find_format
from wattkeeper.traces.library import store
from wattkeeper.traces.library.catalogue import File, WellKnown, find_known
from wattkeeper.traces.library.folder import META, amend, check_free
from wattkeeper.traces.library.importer import RowsMalformed
from wattkeeper.traces.limits import MOST_RATIO, UNLIMITED_BYTES
from wattkeeper.traces.readers.base import JobsFormat

DOWNLOADS: Final = ".downloads"
TIMEOUT_S: Final = 30
"""Of one wait for the server."""
LONGEST_S: Final = 6 * 3600.0
"""Of a request and its answer; what has arrived is kept."""
GRACE_S: Final = 60.0
"""After so long a server must have sent `SLOWEST_BYTES_PER_S` on average."""
SLOWEST_BYTES_PER_S: Final = 1000
LARGEST_BYTES: Final = 8 << 30
"""Of a file, and of a member that is unpacked."""
CHUNK: Final = 1 << 16
SHOWN: Final = 10
BROKEN_ARCHIVE: Final = (
    tarfile.TarError,
    zipfile.BadZipFile,
    BadGzipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,
    RuntimeError,
)

Progress = Callable[[str, int, int | None], None]
"""Called with the current file, bytes done, and total bytes if known."""


class Fetched(NamedTuple):
    """The result of a download.

    Attributes:
        added: The result of the import.
        digests: SHA-256 (hex) of each downloaded file by name.
        stated: Names of the files whose digest was known beforehand, and matches.
        changed: One sentence for each file that differs from the one it replaced.
    """

    added: store.Added
    digests: Mapping[str, str]
    stated: frozenset[str]
    changed: tuple[str, ...]


class _Unreachable(Exception):
    """The network or the server failed, as described by the message."""


def fetch(
    known_name: str,
    *,
    name: str | None = None,
    replace: bool = False,
    url: str | None = None,
    sha256: Sequence[str] = (),
    skip_bad: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Fetched:
    """Download a well-known trace, verify it, and import it into the library.

    Args:
        known_name: Its name in `wattkeeper.traces.library.catalogue.WELL_KNOWN`.
        name: Its name in the library; by default the same.
        replace: Whether an existing trace may be replaced.
        url: Replaces the known address: that of the file, or, for several files, that of
            the folder which has them under their known names.
        sha256: Replaces the known digests (hex), one per file in the order of the files.
        skip_bad: Whether malformed rows of a job log are skipped and counted.
        progress: Called as bytes arrive.

    Raises:
        InputError: If there is no such trace, its name is taken, or an argument is wrong.
        TraceError: If a file has the wrong size or digest, or cannot be imported.
        EnvironmentLacks: If the server cannot be reached or disconnects, or a file operation fails.
    """
    known = find_known(known_name)
    files = _files(known, url, sha256)
    chosen = check_name(known.name if name is None else name)
    form = find_format(known.format, [Path(known.name)])
    if skip_bad and not isinstance(form, JobsFormat):
        raise InputError(f"format {form.name} has no rows to skip; --skip-bad is for job logs")
    target = library_folder() / chosen
    check_free(target, overwrite=replace)
    with _claim(library_folder() / DOWNLOADS / known.name) as place:
        try:
            digests = {base: _obtain(file, place / base, progress) for base, file in files.items()}
        except _Unreachable as error:
            raise EnvironmentLacks(f"{error}\n{_advise_import(known)}") from error
        before = _inputs(target)
        with _discard_unreadable(files, place):
            paths = _to_import(known, files, place, progress)
            added = store.add(known.format, paths, chosen, replace=replace, skip_bad=skip_bad)
        _record(added.folder, digests, files)
        shutil.rmtree(place, ignore_errors=True)
    changed = tuple(
        f"{file} has changed since it was fetched before: its sha256 was {before[file]}"
        for file, digest in digests.items()
        if before.get(file, digest) != digest
    )
    return Fetched(added, digests, frozenset(b for b, f in files.items() if f.sha256), changed)


@contextmanager
def _discard_unreadable(files: Mapping[str, File], place: Path) -> Iterator[None]:
    """Remove downloads that are no such trace, unless their digest is stated.

    A log of which some rows are malformed stays if the server stated its length.
    """
    try:
        yield
    except TraceError as error:
        unverified = [base for base, file in files.items() if file.sha256 is None]
        entire = all(_state(place / f"{base}.json").get("length") for base in unverified)
        if not unverified or (entire and isinstance(error, RowsMalformed)):
            raise
        for base in unverified:
            (place / base).unlink(missing_ok=True)
        text = (
            f"{', '.join(unverified)}: no digest is stated, and the download cannot be read; it "
            "was removed. The same command downloads it anew"
        )
        raise TraceError([*error.problems[: MOST_PROBLEMS - 1], Problem(text)]) from error


def _files(known: WellKnown, url: str | None, digests: Sequence[str]) -> dict[str, File]:
    """The files to download by name, with the user's address and digests applied."""
    files = {unquote(urlsplit(f.url).path).rsplit("/", 1)[-1]: f for f in known.files}
    if url is not None:
        _check_address(url)
        if len(files) == 1:
            files = {base: file._replace(url=url) for base, file in files.items()}
        else:
            folder = url.rstrip("/")
            files = {base: file._replace(url=f"{folder}/{base}") for base, file in files.items()}
    if digests:
        if len(digests) != len(files):
            need = f"{known.name} needs one for each of {', '.join(files)}"
            raise InputError(f"--sha256: {len(digests)} given; {need}")
        for digest in digests:
            if len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
                raise InputError(f"--sha256: found {digest!r}; allowed are 64 hexadecimal digits")
        files = {
            base: file._replace(sha256=digest.lower(), size_bytes=None)
            for (base, file), digest in zip(files.items(), digests, strict=True)
        }
    return files


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        good = good and "@" not in parts.netloc and url.isprintable() and " " not in url
        good = good and url.isascii()
    except ValueError:
        good = False
    if not good:
        raise InputError(
            f"address {url!r}: allowed are http://HOST/PATH and https://HOST/PATH, without a user"
        )


def _advise_import(known: WellKnown) -> str:
    unpacked = " and unpacked" if any(file.members for file in known.files) else ""
    return (
        f"{known.name} can also be downloaded by hand (see {known.page}){unpacked}, and imported: "
        f"wattkeeper traces import {known.format} PATH..."
    )


@contextmanager
def _claim(place: Path) -> Iterator[Path]:
    """The folder of a download, for this process alone."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.mkdir(mode=0o755, exist_ok=True)
    check_own_folder(place)
    try:
        release = lock(place.with_name(f"{place.name}.lock"))
    except BlockingIOError as error:
        raise EnvironmentLacks(f"{place}: another process is fetching this") from error
    try:
        yield place
    finally:
        release()


def _obtain(file: File, path: Path, progress: Progress) -> str:
    """Download a file to `path` unless it is there already; return its digest."""
    state = path.with_name(f"{path.name}.json")
    digest = digest_file(path) if _state(state).get("url") == file.url and path.is_file() else ""
    if not digest or file.sha256 not in (None, digest):
        path.unlink(missing_ok=True)
        _download(file, path, state, progress)
        digest = digest_file(path)
    if file.sha256 not in (None, digest):
        path.unlink()
        text = (
            f"has sha256 {digest}, not {file.sha256}: it is not the file it should be, and "
            "was removed. If you trust it, say so with --sha256"
        )
        raise TraceError(text, file.url)
    return digest


def _state(path: Path) -> dict[str, str]:
    """Source of a download: ``url``, and ``validator``, which identifies the version."""
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _download(file: File, path: Path, state: Path, progress: Progress) -> None:
    part = path.with_name(f"{path.name}.part")
    before = _state(state)
    known = before.get("validator") if before.get("url") == file.url else None
    have = part.stat().st_size if known and part.is_file() else 0
    reply, start = _request(file.url, have, known or "")
    with reply:
        length = reply.headers.get("Content-Length", "")
        total = start + int(length) if length.isdecimal() else None
        if None not in (file.sha256, file.size_bytes, total) and total != file.size_bytes:
            text = f"has {total:,} bytes, not {file.size_bytes:,}: it is not the file it should be"
            raise TraceError(text, file.url)
        if reply.headers.get_content_type() == "text/html":
            text = "the server answers with a web page (text/html), not with the file"
            raise _Unreachable(f"{file.url}: {text}")
        tag = reply.headers.get("ETag", "W/")
        validator = reply.headers.get("Last-Modified", "") if tag.startswith("W/") else tag
        length_text = "" if total is None else str(total)
        source = {"url": file.url, "validator": validator, "length": length_text}
        state.write_text(json.dumps(source), encoding="utf-8")
        with part.open("ab" if start else "wb") as out:
            _copy(reply, out, file.url, (start, total), progress)
    if not part.stat().st_size:
        part.unlink()
        raise _Unreachable(f"{file.url}: the server sends an empty file")
    move_file(part, path)


def _request(url: str, have: int, validator: str) -> tuple[HTTPResponse, int]:
    """The server's reply, and the byte at which it starts."""
    if have:
        reply = _open(url, {"Range": f"bytes={have}-", "If-Range": validator})
        if reply is not None:
            if reply.status == HTTPStatus.OK:
                return reply, 0
            if _is_rest(reply, have, validator):
                return reply, have
            reply.close()
    reply = _open(url, {})
    if reply is None or reply.status != HTTPStatus.OK:
        raise _Unreachable(f"{url}: the server does not send the whole file")
    return reply, 0


def _is_rest(reply: HTTPResponse, have: int, validator: str) -> bool:
    """Whether a reply is the rest of the same version of a file, from a byte to its end."""
    headers = reply.headers
    span = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", headers.get("Content-Range", ""))
    if span is None or validator not in (headers.get("ETag"), headers.get("Last-Modified")):
        return False
    start, end, total = map(int, span.groups())
    length = headers.get("Content-Length", str(total - have))
    return (start, end + 1, length) == (have, total, str(total - have))


def _open(url: str, headers: Mapping[str, str]) -> HTTPResponse | None:
    """Request an address; None if the server cannot serve the range."""
    opener = urllib.request.OpenerDirector()
    for handler in (  # no others: a redirection may not lead to a file or to ftp
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        _TimedHandler,
        _TimedSecureHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    always = {"User-Agent": "wattkeeper", "Accept-Encoding": "identity"}
    request = urllib.request.Request(url, headers={**always, **headers})
    try:
        reply = opener.open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and headers:
            return None
        raise _Unreachable(f"{url}: the server answers {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        text = getattr(reason, "strerror", None) or reason
        raise _Unreachable(f"{url}: cannot be reached: {text}") from error
    assert isinstance(reply, HTTPResponse)
    if url.startswith("https:") and not reply.url.startswith("https:"):
        reply.close()
        raise _Unreachable(f"{url}: leads to {reply.url}, which is not protected (https)")
    return reply


class _TimedStream(io.RawIOBase):
    """The bytes of a server; raises TimeoutError where they come too slowly."""

    def __init__(self, raw: Any) -> None:
        self._raw, self._began_s, self._bytes = raw, time.monotonic(), 0

    def readable(self) -> bool:
        """True: as every stream that is read."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """As of any raw stream."""
        count: int | None = self._raw.readinto(buffer)
        self._bytes += count or 0
        elapsed_s = time.monotonic() - self._began_s
        slow = elapsed_s > GRACE_S and self._bytes < elapsed_s * SLOWEST_BYTES_PER_S
        if slow or elapsed_s > LONGEST_S:
            raise TimeoutError(f"too slow: {self._bytes:,} bytes in {elapsed_s:.0f} s")
        return count

    def close(self) -> None:
        """Close the stream of the server, too."""
        self._raw.close()
        super().close()


class _TimedReply(HTTPResponse):
    """A reply whose headers and body arrive in time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.fp: Any = io.BufferedReader(_TimedStream(self.fp.detach()))


class _Timed(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Any, req: Any, **options: Any) -> Any:
        """Open a connection whose replies are timed."""

        def connect(*args: Any, **more: Any) -> Any:
            connection = http_class(*args, **more)
            connection.response_class = _TimedReply
            return connection

        return super().do_open(connect, req, **options)


class _TimedHandler(_Timed, urllib.request.HTTPHandler):
    """Of http."""


class _TimedSecureHandler(_Timed, urllib.request.HTTPSHandler):
    """Of https."""


def _copy(
    reply: HTTPResponse, out: IO[bytes], url: str, span: tuple[int, int | None], progress: Progress
) -> None:
    """Copy the body of a reply, from a byte to the end, if that is known."""
    done, total = span
    what = unquote(urlsplit(url).path).rsplit("/", 1)[-1]
    of = "" if total is None else f" of {total:,}"
    again = "; the same command goes on from there"
    while True:
        try:
            chunk = reply.read1(CHUNK)
        except (OSError, HTTPException) as error:
            slow = f" ({error})" if isinstance(error, TimeoutError) else ""
            text = f"{url}: broke off after {done:,}{of} bytes{slow}{again}"
            raise _Unreachable(text) from error
        if not chunk:
            break
        if done + len(chunk) > LARGEST_BYTES:
            Path(out.name).unlink()
            text = f"sends more than {LARGEST_BYTES:,} bytes; what came was removed"
            raise _Unreachable(f"{url}: {text}")
        out.write(chunk)
        done += len(chunk)
        progress(what, done, total)
    if total not in (None, done):
        raise _Unreachable(f"{url}: broke off after {done:,}{of} bytes{again}")


def _to_import(
    known: WellKnown, files: Mapping[str, File], place: Path, progress: Progress
) -> list[Path]:
    """The paths that the format takes; archives are unpacked."""
    unpacked = place / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    if known.as_folder:
        return [place]
    paths = []
    for base, file in files.items():
        path = place / base
        paths += _unpack(path, file, unpacked, progress) if file.members else [path]
    return paths


def _unpack(path: Path, file: File, folder: Path, progress: Progress) -> list[Path]:
    """Extract the requested members as plain files into a folder."""
    made: dict[str, Path] = {}
    most = min(LARGEST_BYTES, max(UNLIMITED_BYTES, MOST_RATIO * path.stat().st_size))
    names = []
    try:
        for name, size, stream in _members(path, file.url):
            names.append(name)
            ending = next((e for e in file.members if PurePosixPath(name).match(e)), None)
            if ending is None or ending in made:
                continue
            parts = PurePosixPath(name).parts
            if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
                raise TraceError(f"has a member with an unsafe path: {name!r}", file.url)
            made[ending] = folder.joinpath(*parts)
            made[ending].parent.mkdir(parents=True, exist_ok=True)
            with stream() as source, made[ending].open("wb") as out:
                while chunk := source.read(CHUNK):
                    out.write(chunk)
                    if out.tell() > most:
                        raise TraceError(f"has a member of more than {most:,} bytes", file.url)
                    progress(name, out.tell(), size)
            if len(made) == len(file.members):
                break
    except BROKEN_ARCHIVE as error:
        path.unlink()
        text = f"is a broken archive, and was removed: {error or type(error).__name__}"
        raise TraceError(text, file.url) from error
    if missing := [ending for ending in file.members if ending not in made]:
        present = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
        text = f"has no member {' or '.join(missing)}; it has {present or 'none'}"
        raise TraceError(text, file.url)
    return [made[ending] for ending in file.members]


def _members(path: Path, url: str) -> Iterator[tuple[str, int, Callable[[], IO[bytes]]]]:
    """Path, size in bytes, and opener of each plain file in an archive."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for info in packed.infolist():
                if not info.is_dir():
                    yield info.filename, info.file_size, partial(packed.open, info)
    elif tarfile.is_tarfile(path):
        with tarfile.open(path) as tape:
            for member in tape:
                if member.isreg():
                    yield member.name, member.size, partial(_extract, tape, member)
    else:
        raise TraceError("is neither a tar nor a zip archive", url)


def _extract(tape: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    stream = tape.extractfile(member)
    assert stream is not None  # of a plain file there always is one
    return stream


def _inputs(folder: Path) -> dict[str, str]:
    """Input digests of a trace in the library; empty if there is none or it is broken."""
    try:
        inputs = json.loads((folder / META).read_bytes())["inputs"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return inputs if isinstance(inputs, dict) else {}


def _record(folder: Path, digests: Mapping[str, str], files: Mapping[str, File]) -> None:
    """Add the downloaded files to the inputs in ``trace.json``."""
    amend(folder, digests, [f"Fetched from {file.url}" for file in files.values()])
