"""Follows the view of a node, and calls a function with each new state.

It performs the duties of a client (docs/writing-a-backend.md): one request for each batch, states that are applied as a
whole, a view that outlives streams, delays that spare the watcher, acknowledgements, and no way back to an older state.

Three threads take part: that of `run` makes the calls, one of this module reads streams, and one of gRPC sends what
`_Sender` yields. One lock guards what they share.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Callable, Optional

import grpc

from kpng.connect import (
    Address,
    Backoff,
    Credentials,
    Reconnect,
    metadata_of,
    open_channel,
    parse_api,
    probe,
    pushback_of,
    resolve,
)
from kpng.forward import Gate, position_of
from kpng.localv1 import api_pb2
from kpng.view import StreamError, View, read_batch

_ANSWER_LIMIT = 30.0
"""Maximum time from the opening of a stream to its first message, in seconds."""


@dataclass(frozen=True)
class Change:
    """The difference between `view` and the view of the last successful call."""

    view: View
    touched: list[str]
    """Sorted keys of the Services that may differ. `view.services` lacks those that were deleted."""
    node_changed: bool
    """True if `view.node` may differ."""
    first: bool
    """True until a call has succeeded."""


@dataclass(frozen=True)
class Options:
    """Options of a client. `node_name` and one of `on_state` and `on_change` are required."""

    node_name: str
    """Node of the view. The cluster may not know it."""
    on_state: Optional[Callable[[View], None]] = None
    """Puts a state into effect, in the thread of `run`.

    Calls never overlap, and a view equal to the last successful one leads to none. After an exception, the call is
    repeated with the newest view, at first after about a second, later after 30 s.
    """
    on_change: Optional[Callable[[Change], None]] = None
    """Called instead of `on_state`, with the Services that may have changed."""
    api: str = "127.0.0.1:12090"
    """Addresses of watchers, separated by commas: host:port, https://host:port or unix:///path.

    A host name with several addresses stands for several watchers.
    """
    service_proxy_name: str = ""
    """Selects Services by the label service.kubernetes.io/service-proxy-name; "" for the watcher's default."""
    program: str = "python-client"
    """Name of the caller in `kpng get nodes`."""
    version: str = ""
    tls_ca: str = ""
    """PEM file, read for each connection, as are the other two. "": the CAs of gRPC verify the watcher."""
    tls_cert: str = ""
    tls_key: str = ""
    token_file: str = ""
    """File with a ServiceAccount token. Read for each stream; sent only over TLS or a unix socket."""


@dataclass(frozen=True)
class Status:
    """Describes a client, for health checks. A lost stream is not a failure: what was applied remains in effect."""

    connected: bool = False
    """True if a stream is open and has delivered a state."""
    stream_error: Optional[Exception] = None
    """Why the last stream ended; None while connected."""
    received: Optional[View] = None
    """Newest view."""
    applied: Optional[View] = None
    """View of the last successful call. A node is ready once it is set."""
    error: Optional[Exception] = None
    """Exception of the last call; None if the call succeeded."""
    failing_since: Optional[float] = None
    """Time of the first exception, of the monotonic clock."""


def run(options: Options) -> None:
    """Follows the view of a node, in this thread, until an exception such as KeyboardInterrupt.

    The exception may interrupt a running call: use `Client.stop` to end after it.
    """
    Client(options).run()


@dataclass
class _Result:
    """Result of the last call, for an acknowledgement."""

    instance: str = ""
    applied: int = 0
    failed: int = 0
    error: str = ""
    at: float = 0.0
    is_unsent: bool = False

    @property
    def age_micros(self) -> int:
        return int((time.monotonic() - self.at) * 1e6)


@dataclass
class _Offer:
    """A view on its way from a stream to the callbacks."""

    view: View
    touched: set[str]
    node_changed: bool


class Client:
    """Follows the view of a node. Raises ValueError for invalid options."""

    def __init__(self, options: Options) -> None:
        if not 1 <= len(options.node_name) <= 253:
            raise ValueError("node_name must have 1 to 253 characters")
        if (options.on_state is None) == (options.on_change is None):
            raise ValueError("set one of on_state and on_change")
        self._options = options
        self._log = logging.getLogger("kpng")
        credentials = Credentials(options.tls_ca, options.tls_cert, options.tls_key, options.token_file)
        self._credentials = credentials
        self._addresses = parse_api(options.api, credentials)
        # Of the thread that reads streams.
        self._gate = Gate()
        self._reconnect = Reconnect()
        self._view = View()
        self._last: Optional[Address] = None
        self._is_answered = False
        # Of the thread that makes the calls.
        self._retry = Backoff(1.0, 30.0, 0.5)
        # Guards the rest, and is notified of each change.
        self._changed = threading.Condition()
        self._status = Status()
        self._result = _Result()
        self._offer: Optional[_Offer] = None
        # The offer is handled after the next call, whether or not it succeeded. The stream then asks for the next
        # batch, so a newer state can replace one that fails.
        self._is_handled = True
        self._is_stopped = False
        self._crash: Optional[BaseException] = None
        self._call: Any = None

    def status(self) -> Status:
        """Returns a snapshot. May be called by any thread."""
        with self._changed:
            return self._status

    def stop(self) -> None:
        """Lets `run` return after the running call. May be called by any thread, and by a signal handler."""
        with self._changed:
            self._is_stopped = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.cancel()

    def run(self) -> None:
        """Follows the view, in this thread, until `stop` is called. To be called once only."""
        thread = threading.Thread(target=self._follow_streams, name="kpng-stream", daemon=True)
        thread.start()
        try:
            self._apply()
        finally:
            self.stop()
            thread.join()
        if self._crash is not None:
            raise self._crash

    # The thread that reads streams.

    def _follow_streams(self) -> None:
        try:
            while not self._is_stopped:
                self._reconnect.opening()
                try:
                    self._connect()
                except (grpc.RpcError, StreamError, OSError) as error:
                    self._wait_after(error)
        except BaseException as error:  # A defect: end `run` with it.
            self._crash = error
        finally:
            # A signal may call `stop` in the thread of `run` just before that thread waits, and not wake it.
            self.stop()

    def _wait_after(self, error: Exception) -> None:
        if self._is_stopped:
            return
        kind, delay = self._reconnect.ended(error)
        # A delay that the watcher asked for is not shortened.
        if kind == "lost":
            delay = self._gate.retry_delay(delay)
        details = getattr(error, "details", None)
        reason = (details() or "the watcher ended the stream") if callable(details) else error
        self._log.warning("stream %s: %s; next one in %.1f s", kind, reason, delay)
        with self._changed:
            self._status = replace(self._status, connected=False, stream_error=error)
            self._changed.wait_for(lambda: self._is_stopped, delay)

    def _connect(self) -> None:
        """Follows the first watcher that can be reached."""
        failure: Optional[Exception] = None
        for one in resolve(self._addresses, self._last):
            self._last, self._is_answered = one, False
            try:
                with open_channel(one, self._credentials) as channel:
                    self._follow(channel)
            except grpc.RpcError as error:
                if self._is_answered or self._is_stopped or pushback_of(error) is not None:
                    raise
                failure = probe(one)
                if failure is None:
                    raise
        if failure is not None:
            raise failure

    def _follow(self, channel: Any) -> None:
        """Reads one stream until it breaks. The view remains."""
        watch = channel.stream_stream(
            "/localv1.Sets/Watch",
            request_serializer=api_pb2.WatchReq.SerializeToString,
            response_deserializer=api_pb2.OpItem.FromString,
        )
        sender = _Sender(self)
        call = watch(sender, metadata=metadata_of(self._credentials))
        with self._changed:
            self._call = call
            if self._is_stopped:
                call.cancel()
        unanswered = threading.Timer(_ANSWER_LIMIT, call.cancel)
        unanswered.daemon = True
        unanswered.start()
        ops = self._answered(call, unanswered)
        try:
            is_first = True
            while True:
                # The only place that asks for a batch: the one before has been applied, or has failed.
                sender.request()
                batch, mark = read_batch(ops, self._view, self._options.node_name, is_first)
                view, touched = batch.finish(self._view, mark)
                node_changed = view.node is not self._view.node
                is_same = not touched and not node_changed and self._status.received is not None
                # The header is about the first state of the stream.
                is_stale = is_first and any(key == "kpng-stale" for key, _ in call.initial_metadata() or ())
                self._gate.admit(position_of(mark), is_stale, is_same)
                self._view = view
                self._reconnect.progressed()
                sender.mark = mark
                self._deliver(_Offer(view, touched, node_changed))
                is_first = False
        except grpc.RpcError as error:
            if not self._is_stopped and error.code() == grpc.StatusCode.CANCELLED and not unanswered.is_alive():
                if not self._is_answered:
                    raise StreamError(f"the watcher did not answer within {_ANSWER_LIMIT:.0f} s") from error
            raise
        finally:
            unanswered.cancel()
            sender.close()
            call.cancel()
            with self._changed:
                self._call = None

    def _answered(self, call: Any, unanswered: threading.Timer) -> Iterator[api_pb2.OpItem]:
        for item in call:
            unanswered.cancel()
            self._is_answered = True
            yield item
        if pushback_of(call) is not None:
            raise call

    def _deliver(self, offer: _Offer) -> None:
        """Waits until a call was made with this view."""
        with self._changed:
            self._status = replace(self._status, connected=True, stream_error=None, received=offer.view)
            self._offer = offer
            self._is_handled = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_handled or self._is_stopped)
            if self._is_stopped:
                raise StreamError("stopped")

    # The thread that makes the calls.

    def _apply(self) -> None:
        """Makes the calls, one at a time, each with the newest view, until `stop` is called."""
        view = View()
        touched: set[str] = set()
        node_changed, is_first = False, True
        # Time at which a failed call is repeated.
        retry_at: Optional[float] = None
        while True:
            with self._changed:
                while True:
                    if self._is_stopped:
                        return
                    is_due = retry_at is None
                    if self._offer is not None:
                        offer, self._offer = self._offer, None
                        view = offer.view
                        touched |= offer.touched
                        node_changed = node_changed or offer.node_changed
                        if is_due:
                            break
                    wait = None if retry_at is None else retry_at - time.monotonic()
                    if wait is not None and wait <= 0:
                        break
                    self._changed.wait(wait)
            error: Optional[Exception] = None
            retry_at = None
            # A pending failure has touched something; without a difference, the view is in effect already.
            if is_first or node_changed or touched:
                error = self._try(Change(view, sorted(touched), node_changed, is_first))
            if error is None:
                touched, node_changed, is_first = set(), False, False
                self._retry.reset()
            else:
                delay = self._retry.next()
                retry_at = time.monotonic() + delay
                self._log.error("state not applied, next attempt in %.1f s", delay, exc_info=error)
            self._report(view, error)

    def _try(self, change: Change) -> Optional[Exception]:
        try:
            if self._options.on_change is not None:
                self._options.on_change(change)
            elif self._options.on_state is not None:
                self._options.on_state(change.view)
        except Exception as error:
            return error
        return None

    def _report(self, view: View, error: Optional[Exception]) -> None:
        now = time.monotonic()
        with self._changed:
            result = _Result(view.instance, view.revision, at=now, is_unsent=True)
            if error is None:
                self._status = replace(self._status, applied=view, error=None, failing_since=None)
            else:
                since = self._status.failing_since
                self._status = replace(self._status, error=error, failing_since=now if since is None else since)
                result.applied = self._result.applied if self._result.instance == view.instance else 0
                result.failed = view.revision
                result.error = (str(error) or type(error).__name__).encode(errors="replace").decode()[:1000]
            self._result = result
            # An offer that arrived during the call waits for the next one.
            self._is_handled = self._offer is None
            self._changed.notify_all()


class _Sender:
    """Yields the requests and acknowledgements of one stream when they are due."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._is_requested = False
        self._is_closed = False
        self._is_first = True
        self._next_ack = 0.0
        self.mark: Optional[api_pb2.EmptyOp] = None
        """Marker of the last batch."""
        # The same run of the watcher may not have received the result on the previous stream.
        client._result.is_unsent = client._result.instance != ""

    def request(self) -> None:
        """Asks for the next batch."""
        with self._client._changed:
            self._is_requested = True
            self._client._changed.notify_all()

    def close(self) -> None:
        with self._client._changed:
            self._is_closed = True
            self._client._changed.notify_all()

    def __iter__(self) -> _Sender:
        return self

    def __next__(self) -> api_pb2.WatchReq:
        changed = self._client._changed
        with changed:
            while not self._is_closed:
                wait = self._next_ack - time.monotonic()
                is_ack_due = self._is_ack_due()
                if is_ack_due and wait <= 0:
                    return self._ack()
                if self._is_requested:
                    self._is_requested = False
                    return self._request()
                changed.wait(wait if is_ack_due else None)
        raise StopIteration

    def _is_ack_due(self) -> bool:
        # Other watchers would answer an acknowledgement with a batch.
        mark, result = self.mark, self._client._result
        return mark is not None and mark.TakesAcks and result.is_unsent and result.instance == mark.Instance

    def _ack(self) -> api_pb2.WatchReq:
        result = self._client._result
        result.is_unsent = False
        interval = ((self.mark.AckIntervalMs if self.mark else 0) or 100) / 1000
        # All nodes apply a change at the same time; their acknowledgements should not arrive together.
        self._next_ack = time.monotonic() + interval * (1 + random.random() / 2)
        ack = api_pb2.Ack(
            Applied=result.applied, Failed=result.failed, Error=result.error, AgeMicros=result.age_micros
        )
        return api_pb2.WatchReq(Ack=ack)

    def _request(self) -> api_pb2.WatchReq:
        options, result = self._client._options, self._client._result
        request = api_pb2.WatchReq(
            NodeName=options.node_name,
            ServiceProxyName=options.service_proxy_name,
            Features=[api_pb2.Extended, api_pb2.NodeItem],
        )
        if self._is_first:
            self._is_first = False
            request.Subscriber.CopyFrom(api_pb2.Subscriber(Name=options.program, Version=options.version))
            # A restarted watcher shows a failing node at once.
            if result.failed > 0:
                failure = api_pb2.ApplyFailure(Error=result.error, AgeMicros=result.age_micros)
                request.LastFailure.CopyFrom(failure)
        return request
