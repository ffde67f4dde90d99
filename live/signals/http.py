"""Small answers of web services as JSON."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from email.message import Message
from http.client import HTTPException, HTTPResponse
from typing import IO, Any, Final
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from wattkeeper.policies.errors import EnvironmentLacks

TIMEOUT_S: Final = 20.0
"""How long a connection, each part of an answer, and a whole answer may take, s."""
MOST_BYTES: Final = 8_000_000
MOST_RETRY_S: Final = 3600.0


class NoAnswer(EnvironmentLacks):
    """A service did not answer as it should; it may do so later.

    Attributes:
        retry_s: The time after which it wants to be asked again, s; 0: it does not say.
    """

    def __init__(self, message: str, retry_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class _NoRedirects(HTTPRedirectHandler):
    """Headers with secrets go to the stated host only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        """Follow none: the answer is an error."""


def get_json(
    address: str, parameters: Mapping[str, str], headers: Mapping[str, str]
) -> dict[str, Any]:
    """The object that a service answers with.

    Args:
        address: Without parameters.
        parameters: Of the query.
        headers: They may hold secrets: no message names them, and no redirect is followed.

    Raises:
        NoAnswer: If it answers with an error, too much, no JSON object, or not in time.
        EnvironmentLacks: If it refuses the credentials: to ask again is no use.
    """
    query = f"{address}?{urlencode(parameters)}" if parameters else address
    try:
        with build_opener(_NoRedirects).open(
            Request(query, headers=dict(headers)), timeout=TIMEOUT_S
        ) as answer:
            body = _read(answer)
    except HTTPError as error:
        with error:
            what = f"{address} answers with status {error.code}"
            if error.code in (401, 403):
                raise EnvironmentLacks(f"{what}: it refuses these credentials") from None
            raise NoAnswer(what, _retry_s(error.headers)) from None
    except ValueError:  # its text may hold a header
        raise NoAnswer(f"{address} cannot be asked: the request is not valid") from None
    except (URLError, OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise NoAnswer(f"{address} does not answer: {reason}") from None
    if len(body) > MOST_BYTES:
        raise NoAnswer(f"{address} answers with more than {MOST_BYTES:,} bytes")
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise NoAnswer(f"{address} answers with something else than a JSON object")
    return content


def _read(answer: HTTPResponse) -> bytes:
    """The body, as far as it is needed to see that it is too long.

    Raises:
        TimeoutError: If it takes too long as a whole.
    """
    until_s = time.monotonic() + TIMEOUT_S
    body = b""
    while len(body) <= MOST_BYTES and (part := answer.read1(1 << 16)):
        body += part
        if time.monotonic() > until_s:
            raise TimeoutError("its answer takes too long")
    return body


def basic_authorization(user: str, password: str) -> dict[str, str]:
    """The header of a user and a password (RFC 7617)."""
    word = base64.b64encode(f"{user}:{password}".encode()).decode("ascii")
    return {"Authorization": f"Basic {word}"}


def _retry_s(headers: Message) -> float:
    """What `Retry-After` states in seconds, up to an hour; 0 if it does not."""
    text = str(headers.get("Retry-After", ""))
    return min(float(text), MOST_RETRY_S) if text.isdecimal() else 0.0
