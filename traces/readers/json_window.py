"""Reader of JSON documents of any size, value by value, with the lines of values."""

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

from wattkeeper.policies.errors import TraceError
from wattkeeper.traces.readers.csvfile import open_plain

CHUNK_BYTES: Final = 1 << 20
LONGEST_VALUE: Final = 1 << 22
"""Characters of a value that is decoded at once."""
SPACE: Final = re.compile(r"[ \t\r\n]*")


class JsonWindow:
    """A moving window on a file, plain or gzip, UTF-8 with or without byte order mark.

    Attributes:
        path: The file.
        line: Physical line of the window's start.
    """

    def __init__(
        self, path: Path, what: str, *, longest: int = LONGEST_VALUE, advice: str = ""
    ) -> None:
        """Open a file.

        Args:
            path: The file.
            what: Names a value in messages, such as "job".
            longest: Characters of a value that is decoded at once.
            advice: Ends messages.
        """
        self.path, self.line = path, 1
        self._what, self._longest, self._advice = what, longest, advice
        self._chunks = _chunks(path)
        self._text, self._at, self._ended = "", 0, False
        self._decoder = json.JSONDecoder()

    def fail(self, message: str) -> NoReturn:
        """Raise `TraceError` with file and line."""
        raise TraceError(message + self._advice, f"{self.path}, line {self.line}")

    def peek(self) -> str:
        """The next character that is not white space; empty at the end."""
        while True:
            match = SPACE.match(self._text, self._at)
            self._move(match.end() if match else self._at)
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def expect(self, character: str, message: str) -> None:
        """Consume a character; raises `TraceError` if another one is next."""
        if (present := self.peek()) != character:
            text = repr(present) if present else "the end of the file"
            self.fail(f"{message}: found {text}, expected {character!r}")
        self._at += 1

    def value(self) -> tuple[object, int]:
        """Decode the value that starts here; its number of characters.

        Raises:
            TraceError: If it is broken, or too long.
        """
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                length = len(self._text) - self._at
                if length < self._longest and self._more():
                    continue
                fault = getattr(error, "msg", error)
                if length >= self._longest:
                    fault = f"{fault}, or it is longer than {self._longest:,} characters"
                self.fail(f"the {self._what} that starts here is broken: {fault}")
            if end == len(self._text) and self._more():  # a number may continue
                continue
            length = end - self._at
            self._move(end)
            return value, length

    def elements(self) -> Iterator[tuple[int, object, int]]:
        """The objects of the array that starts here: first line, value, number of characters."""
        self.expect("[", f"is no JSON array of {self._what}s")
        if self.peek() != "]":
            while True:
                if self.peek() != "{":
                    self.expect("{", f"no {self._what} starts here")
                yield self.line, *self.value()
                if self.peek() != ",":
                    break
                self.expect(",", "")
        self.expect("]", "the array goes on wrongly, or ends too early")

    def records(self, name: str) -> Iterator[tuple[int, object, dict[str, Any]]]:
        """The objects of the documents that follow each other, with their first lines.

        A document is an array of objects, an object with such an array as its member `name`, which
        is not held as a whole, or an object without it, which counts itself. Each object comes with
        the members of its document that stand before the array.
        """
        while first := self.peek():
            if first == "[":
                yield from ((line, record, {}) for line, record, _ in self.elements())
            else:
                yield from self._document(name)

    def _document(self, name: str) -> Iterator[tuple[int, object, dict[str, Any]]]:
        self.expect("{", f"no {self._what} starts here")
        line, members, is_list = self.line, dict[str, Any](), False
        while self.peek() != "}":
            self.expect('"', "the object goes on wrongly, or ends too early")
            self._at -= 1
            key, _ = self.value()
            self.expect(":", "the object goes on wrongly, or ends too early")
            if key == name and self.peek() == "[":
                is_list = True
                for number, record, _ in self.elements():
                    yield number, record, members
            else:
                members[str(key)], _ = self.value()
            if self.peek() != "}":
                self.expect(",", "the object goes on wrongly, or ends too early")
                if self.peek() == "}":
                    self.fail("the object ends with a comma")
        self.expect("}", "")
        if not is_list:
            yield line, members, {}

    def _move(self, end: int) -> None:
        self.line += self._text.count("\n", self._at, end)
        self._at = end

    def _more(self) -> bool:
        if not self._ended:
            if chunk := next(self._chunks, ""):
                self._text, self._at = self._text[self._at :] + chunk, 0
            else:
                self._ended = True
        return not self._ended


def _chunks(path: Path) -> Iterator[str]:
    """The text of a file in pieces, none of them empty."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        with open_plain(path) as file:
            while data := file.read(CHUNK_BYTES):
                if text := decoder.decode(data):
                    yield text
            decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise TraceError(f"is not UTF-8 ({error.reason}); convert it", path) from error
