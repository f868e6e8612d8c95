"""Client of the webhook broker and the webhook relay of jetpull, on the standard library alone.

A producer broadcasts with Broker.broadcast, a worker handles the jobs of a pull consumer with Consumer.consume, a sender uses Relay, and a
receiver checks signatures with verify. Objects may be used by several threads.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import re
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.message import Message as Headers
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any

__all__ = ["Broker", "ClaimLostError", "Consumer", "FatalError", "Job", "Relay", "ResponseError", "SignatureError", "UnavailableError", "verify"]

_REPEATED = {429, 502, 503, 504}
_POLL, _MAX_CLAIM = 5, 100


class ResponseError(Exception):
    """A response with a status other than success."""

    def __init__(self, status: int, text: str, code: str = "", after: float = 0) -> None:
        super().__init__(f"the server answered {status}: {text}")
        self.status, self.text, self.code, self.after = status, text, code, after
        self.tries = 1


class UnavailableError(Exception):
    """The server could not be reached, or cannot serve the request now. The request may have been carried out."""


class ClaimLostError(Exception):
    """The claim is over: it expired, or another worker has the job."""


class FatalError(Exception):
    """A handler raises it if the work can never be done: the job becomes dead without a retry."""


class SignatureError(Exception):
    """A request has no valid signature."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Tokens are for one server only."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _escape(segment: str) -> str:
    return urllib.parse.quote(segment, safe="").replace(".", "%2E")


class _Http:
    def __init__(self, url: str, header: Mapping[str, str], timeout: float, tries: int, pause: float) -> None:
        self.url, self.header, self.timeout, self.tries, self.pause = url.rstrip("/"), dict(header), timeout, tries, pause
        self.opener = urllib.request.build_opener(_NoRedirect)

    def once(self, method: str, path: str, header: Mapping[str, str], body: bytes | None, timeout: float) -> tuple[Headers, bytes]:
        # http.client sends a character of a header as one byte; the server expects UTF-8.
        header = {name: value.encode().decode("latin-1") for name, value in {**self.header, **header}.items()}
        request = urllib.request.Request(self.url + path, body, header, method=method)
        try:
            with self.opener.open(request, timeout=timeout) as response:
                return response.headers, response.read()
        except urllib.error.HTTPError as e:
            text = e.read().decode(errors="replace")
            code = ""
            try:
                error = json.loads(text)["error"]
                code, text = error["code"], error["message"]
            except (ValueError, KeyError, TypeError):
                pass  # the broker's errors are plain text
            after = e.headers.get("Retry-After", "")
            raise ResponseError(e.code, text, code, float(after) if after.isdecimal() else 0) from None
        except (OSError, HTTPException) as e:
            raise UnavailableError(f"{self.url} cannot be reached: {e}") from e

    def send(self, method: str, path: str, header: Mapping[str, str] = {}, body: Any = None, query: Mapping[str, Any] = {},
             repeat: bool = False, wait: float = 0) -> tuple[Headers, bytes]:
        """send makes one request, again and again while the server is unavailable if repeat is true."""
        if asked := {k: v for k, v in query.items() if v is not None}:
            path += "?" + urllib.parse.urlencode(asked)
        if body is not None and not isinstance(body, bytes):
            header = {"Content-Type": "application/json", **header}
            body = json.dumps(body).encode()
        pause = self.pause
        for tries in range(1, self.tries + 1):
            after = 0.0
            try:
                return self.once(method, path, header, body, self.timeout + wait)
            except ResponseError as e:
                e.tries, after = tries, e.after
                if e.status not in _REPEATED or not repeat or tries == self.tries:
                    raise
            except UnavailableError:
                if not repeat or tries == self.tries:
                    raise
            time.sleep(max(pause, after))
            pause = min(2 * pause, 5)
        raise AssertionError("tries is at least 1")

    def json(self, method: str, path: str, header: Mapping[str, str] = {}, body: Any = None, query: Mapping[str, Any] = {},
             repeat: bool = False, wait: float = 0) -> Any:
        headers, answer = self.send(method, path, header, body, query, repeat, wait)
        if (headers.get("Content-Type") or "").startswith("application/json"):
            return json.loads(answer)
        return answer.decode() or None


@dataclass(frozen=True)
class Message:
    """A message to broadcast. Without an id, one is generated."""

    payload: bytes
    id: str = ""
    content_type: str = "application/octet-stream"
    event_type: str = ""
    priority: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    at: datetime | None = None


class Broker:
    """A client of a webhook broker at a URL such as http://127.0.0.1:8080.

    timeout is that of a request in seconds, in addition to the time that it asks the broker to wait.
    """

    def __init__(self, url: str, admin_token: str = "", *, timeout: float = 30, tries: int = 5, pause: float = 0.1) -> None:
        self._http = _Http(url, {"X-Broker-Admin-Token": admin_token} if admin_token else {}, timeout, tries, pause)

    def request(self, method: str, path: str, *, header: Mapping[str, str] = {}, form: Mapping[str, str] | None = None, body: Any = None,
                query: Mapping[str, Any] = {}) -> Any:
        """request makes any request of the interface, once. The path is escaped already."""
        if form is not None:
            header = {"Content-Type": "application/x-www-form-urlencoded", **header}
            body = urllib.parse.urlencode(form).encode()
        return self._http.json(method, path, header, body, query)

    def broadcast(self, channel: str, channel_token: str, producer: str, producer_token: str, message: Message) -> str:
        """broadcast stores a message, and returns its path.

        It repeats the request while the broker is unavailable, with the same ID, so that the message is stored once.
        """
        id = message.id or str(uuid.uuid4())
        header = {
            **message.headers, "X-Broker-Channel-Token": channel_token, "X-Broker-Producer-ID": producer, "X-Broker-Producer-Token": producer_token,
            "X-Broker-Message-ID": id, "Content-Type": message.content_type,
        }
        if message.priority:
            header["X-Broker-Message-Priority"] = str(message.priority)
        if message.event_type:
            header["X-Broker-Event-Type"] = message.event_type
        if message.headers:
            header["X-Broker-Metadata-Headers"] = ",".join(message.headers)
        if message.at:
            header["X-Broker-Scheduled-For"] = message.at.astimezone(timezone.utc).isoformat()
        path = f"/channel/{_escape(channel)}"
        try:
            headers, _ = self._http.send("POST", path + "/broadcast", header, message.payload, repeat=True)
        except ResponseError as e:
            if e.status == 409 and e.tries > 1:  # the response to an earlier try was lost, but the message is stored
                return f"{path}/message/{_escape(id)}"
            raise
        return headers.get("Location") or ""

    def consumer(self, channel: str, channel_token: str, id: str, token: str) -> Consumer:
        """consumer returns a pull consumer. It makes no request."""
        return Consumer(self._http, f"/channel/{_escape(channel)}/consumer/{_escape(id)}",
                        {"X-Broker-Channel-Token": channel_token, "X-Broker-Consumer-Token": token})


class Job:
    """A message that one consumer has to work on."""

    def __init__(self, consumer: Consumer, j: Mapping[str, Any], ahead: float) -> None:
        message = j["Message"]
        self.id: str = j["ID"]
        self.message_id: str = message["MessageID"]
        binary = message.get("PayloadEncoding") == "base64"
        self.payload: bytes = base64.b64decode(message["Payload"]) if binary else message["Payload"].encode()
        self.content_type: str = message["ContentType"]
        self.event_type: str = message.get("EventType", "")
        self.headers: dict[str, str] = message["Headers"]
        self.priority: int = j["Priority"]
        self.lost = threading.Event()
        """set when the claim is lost: the handler should end"""
        self._consumer, self._claim, self._ahead = consumer, j.get("ClaimToken", ""), ahead
        self._expires = _seconds(j.get("ClaimExpiresAt", "")) + ahead

    def _post(self, rest: str, body: dict[str, Any], repeat: bool) -> Any:
        try:
            return self._consumer._http.json("POST", f"{self._consumer._path}/job/{self.id}{rest}", self._consumer._header,
                                             {**body, "ClaimToken": self._claim}, repeat=repeat)
        except ResponseError as e:
            if e.status == 409:
                raise ClaimLostError(f"job {self.id}: {e.text}") from None
            raise

    def delivered(self) -> None:
        """delivered reports that the work is done. It raises a ClaimLostError if the claim is over."""
        self._post("", {"NextState": "DELIVERED"}, True)

    def dead(self) -> None:
        """dead reports that the work can never be done. It raises a ClaimLostError if the claim is over."""
        self._post("", {"NextState": "DEAD"}, True)

    def extend(self, timeout: int = 0) -> None:
        """extend makes the claim last from now for the broker's claim time plus timeout seconds. It raises a ClaimLostError if the claim is over."""
        self._expires = _seconds(self._post("/extend", {"IncrementalTimeout": timeout}, False)["ClaimExpiresAt"]) + self._ahead

    def _keep(self, timeout: int, ended: threading.Event, on_error: Callable[[Exception], None]) -> None:
        """_keep extends the claim whenever half of its remaining time has passed."""
        while (left := self._expires - time.time()) > 0:
            if ended.wait(max(left / 2, 0.05)):
                return
            try:
                self.extend(timeout)
            except (ResponseError, UnavailableError) as e:
                try:
                    on_error(e)
                except Exception:  # the claim is extended whatever on_error does
                    traceback.print_exc()
            except ClaimLostError:
                break
        self.lost.set()

    def _handle(self, handler: Callable[[Job], Any], timeout: int, on_error: Callable[[Exception], None]) -> None:
        ended = threading.Event()
        keeper = threading.Thread(target=self._keep, args=(timeout, ended, on_error), daemon=True)
        keeper.start()
        failed: Exception | None = None
        try:
            handler(self)
        except BaseException as e:  # whatever a handler raises, also by sys.exit, the job is retried
            failed = e if isinstance(e, Exception) else RuntimeError(f"the handler raised {e!r}")
        ended.set()
        keeper.join()
        try:
            if self.lost.is_set():
                raise ClaimLostError(f"job {self.id}: the claim is over")
            if failed is None:
                self.delivered()
            elif isinstance(failed, FatalError):
                self.dead()
        except (ClaimLostError, ResponseError, UnavailableError) as e:
            on_error(e)
        if failed:
            on_error(failed)


def _seconds(time_of_broker: str) -> float:
    """_seconds are those of an RFC 3339 time since 1970. Python before 3.11 reads at most six digits of a fraction."""
    if not time_of_broker:
        return float("inf")
    text = re.sub(r"(\.\d{1,6})\d*", r"\1", time_of_broker).replace("Z", "+00:00")
    if "." in text:
        text = re.sub(r"\.(\d+)", lambda m: "." + m[1].ljust(6, "0"), text)
    return datetime.fromisoformat(text).timestamp()


class Consumer:
    """A pull consumer of a broker."""

    def __init__(self, http: _Http, path: str, header: Mapping[str, str]) -> None:
        self._http, self._path, self._header = http, path, header

    def claim(self, limit: int = 1, *, wait: int = 0, timeout: int = 0) -> list[Job]:
        """claim claims up to limit jobs for this caller.

        If there are none, it waits for one for up to wait seconds, and then returns none. A claim lasts for the broker's claim time, 32.25 s by
        default, plus timeout seconds.
        """
        query = {"limit": limit, "wait": f"{wait}s" if wait else None, "timeout": f"{timeout}s" if timeout else None}
        headers, answer = self._http.send("POST", self._path + "/claim", self._header, query=query, wait=wait)
        # Times are those of the broker, whose clock can differ from that of this machine. Date has whole seconds.
        ahead = time.time() - parsedate_to_datetime(headers["Date"]).timestamp() if headers.get("Date") else 0.0
        return [Job(self, j, ahead - 1 if abs(ahead) > 2 else 0.0) for j in json.loads(answer)["Result"]]

    def consume(self, handler: Callable[[Job], Any], stop: threading.Event, *, concurrency: int = 1, timeout: int = 0,
                on_error: Callable[[Exception], None] = lambda _: None) -> None:
        """consume claims jobs and calls handler for each, in threads, until stop is set; then it waits for the handlers that run.

        It extends claims meanwhile. A job is completed when its handler returns, dead if it raises a FatalError, and queued again when its claim
        ends if it raises another exception. If the broker refuses the tokens or does not know the consumer, consume raises a ResponseError. It
        looks at stop when a claim has returned, which takes up to 5 s.
        """
        running: set[threading.Thread] = set()
        ended = threading.Condition()

        def handle(job: Job) -> None:
            try:
                job._handle(handler, timeout, on_error)
            finally:
                with ended:
                    running.discard(threading.current_thread())
                    ended.notify()

        pause = 0.1
        try:
            while not stop.is_set():
                with ended:
                    ended.wait_for(lambda: len(running) < concurrency)
                    free = min(concurrency - len(running), _MAX_CLAIM)
                try:
                    jobs = self.claim(free, wait=_POLL, timeout=timeout)
                except (ResponseError, UnavailableError) as e:
                    if isinstance(e, ResponseError) and e.status in (401, 403, 404, 412):
                        raise
                    on_error(e)
                    stop.wait(pause)
                    pause = min(2 * pause, 5)
                    continue
                pause = 0.1
                for job in jobs:
                    thread = threading.Thread(target=handle, args=(job,))
                    with ended:
                        running.add(thread)
                    thread.start()
        finally:
            with ended:
                ended.wait_for(lambda: not running)


class Relay:
    """A client of a webhook relay at a URL such as http://127.0.0.1:8080. token is that of a sender, or of the administration."""

    def __init__(self, url: str, token: str = "", *, timeout: float = 30, tries: int = 5, pause: float = 0.1) -> None:
        self._http = _Http(url, {"Authorization": f"Bearer {token}"} if token else {}, timeout, tries, pause)

    def request(self, method: str, path: str, *, body: Any = None, query: Mapping[str, Any] = {}) -> Any:
        """request makes any request of the interface, once. The path is escaped already."""
        return self._http.json(method, path, {}, body, query)

    def send(self, source: str, id: str, receiver: str, payload: Any, *, headers: Mapping[str, str] = {}, wait: int = 0) -> dict[str, Any]:
        """send stores a message, and returns its state.

        The relay delivers a message with the same source and id once, however often it is sent, so send repeats the request while the relay is
        unavailable. With wait, it waits for the receiver's response for up to that many seconds, at most 300.
        """
        message: dict[str, Any] = {"source_id": source, "message_id": id, "receiver": receiver, "payload": payload}
        if headers:
            message["headers"] = dict(headers)
        result: dict[str, Any] = self._http.json("POST", "/v1/messages", body=message, query={"wait": f"{wait}s" if wait else None},
                                                 repeat=True, wait=wait)
        return result

    def response(self, source: str, id: str, *, wait: int = 0) -> dict[str, Any]:
        """response waits for the response to a message for up to wait seconds, at most 300, and returns its state."""
        result: dict[str, Any] = self._http.json("GET", f"/v1/messages/{_escape(source)}/{_escape(id)}/response", query={"wait": f"{wait}s"},
                                                 repeat=True, wait=wait)
        return result


def verify(secrets: str | Iterable[str], headers: Mapping[str, str], body: bytes, *, tolerance: float = 300, now: float | None = None) -> str:
    """verify raises a SignatureError unless the body is signed with one of the secrets, as Standard Webhooks describes.

    The time of the signature must be within tolerance seconds of the clock. headers are those of http.server, or any mapping with lower-case
    names. It returns the ID of the message, which is the same for each repetition.
    """
    keys = []
    for secret in [secrets] if isinstance(secrets, str) else secrets:
        try:
            keys.append(base64.b64decode(secret.removeprefix("whsec_"), validate=True))
        except binascii.Error:
            raise ValueError("a secret is whsec_ and base64") from None
    if not all(keys) or not keys:
        raise ValueError("no secret was given, or an empty one")
    values = [headers.get(name) for name in ("webhook-id", "webhook-timestamp", "webhook-signature")]
    if not all(values):
        raise SignatureError("webhook-id, webhook-timestamp or webhook-signature is missing")
    id, timestamp, signatures = (str(v) for v in values)
    if not re.fullmatch(r"[0-9]{1,15}", timestamp) or abs((time.time() if now is None else now) - int(timestamp)) > tolerance:
        raise SignatureError(f"webhook-timestamp {timestamp} is not within {tolerance:g} s of the clock")
    for key in keys:
        want = base64.b64encode(hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest())
        for given in signatures.split(" "):
            if given.startswith("v1,") and hmac.compare_digest(given[3:].encode(), want):
                return id
    raise SignatureError("webhook-signature is not one of the body with a known secret")
