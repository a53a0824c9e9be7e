from __future__ import annotations

import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator, Optional

import grpc
import pytest
from fake_watcher import PATIENCE, FakeWatcher, at, endpoint, node, put, remove, reset, service, sync
from google.protobuf import descriptor_pb2
from kpng import Change, Client, Options, View
from kpng.connect import Backoff, Credentials, Reconnect, parse_api
from kpng.forward import OlderState, position_of, relate
from kpng.localv1 import api_pb2
from kpng.plan.v1 import plan_pb2


def text(view: Optional[View]) -> str:
    """Describes a view. Shape: `api: b 10.0.0.2, web:`."""
    assert view is not None
    services = []
    for path, one in view.services.items():
        endpoints = "".join(f" {key} {' '.join(each.IPs.V4)}" for key, each in one.endpoints.items())
        services.append(f"{path.removeprefix('default/')}:{endpoints}")
    return ", ".join(sorted(services))


class Running:
    """A client with short delays. Each call waits until the test gives its result."""

    def __init__(self, api: str, prepare: Callable[[Client], None] = lambda client: None, **options: Any) -> None:
        self.calls: queue.Queue[Change] = queue.Queue()
        self._results: queue.Queue[Optional[Exception]] = queue.Queue()
        self.client = Client(Options(node_name="n1", api=api, on_change=self._on_change, **options))
        self.client._reconnect = Reconnect(0.001, 0.01)
        self.client._retry = Backoff(0.001, 0.01, 0.0)
        prepare(self.client)
        self._thread = threading.Thread(target=self.client.run)
        self._thread.start()

    def _on_change(self, change: Change) -> None:
        self.calls.put(change)
        result = self._results.get(timeout=PATIENCE)
        if result is not None:
            raise result

    def answer(self, want: str, result: Optional[Exception] = None) -> Change:
        """Waits for a call, checks its view, and gives it a result."""
        change = self.calls.get(timeout=PATIENCE)
        self._results.put(result)
        assert text(change.view) == want
        return change

    def answer_until(self, want: str, result: Exception) -> Change:
        """Lets calls fail until one has the view, which succeeds."""
        while True:
            change = self.calls.get(timeout=PATIENCE)
            if text(change.view) == want:
                self._results.put(None)
                return change
            self._results.put(result)

    def stop(self) -> None:
        self.client.stop()
        self._results.put(None)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def watcher() -> Iterator[FakeWatcher]:
    one = FakeWatcher()
    yield one
    one.stop()


@pytest.fixture
def start(watcher: FakeWatcher) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def begin(prepare: Callable[[Client], None] = lambda client: None, **options: Any) -> Running:
        running.append(Running(options.pop("api", watcher.address), prepare, **options))
        return running[-1]

    yield begin
    for one in running:
        one.stop()


def test_a_state_is_applied_only_at_its_marker(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), service("web"), endpoint("web", "a", "10.0.0.1"), sync(1))
    client.answer("web: a 10.0.0.1")
    # The stream breaks between two operations: neither the deletion nor the new endpoint takes effect.
    stream.batch(remove(api_pb2.EndpointsSet, "default/web/a"), endpoint("web", "b", "10.0.0.2"))
    stream.end()
    stream = watcher.stream()
    assert text(client.client.status().received) == "web: a 10.0.0.1"
    stream.batch(reset(), service("web"), endpoint("web", "b", "10.0.0.2"), sync(2))
    change = client.answer("web: b 10.0.0.2")
    assert change.touched == ["default/web"]
    assert not change.first


def test_reset_and_sync_are_an_empty_view(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), service("web"), sync(1))
    client.answer("web:")
    stream.batch(reset(), sync(2))
    assert client.answer("").touched == ["default/web"]


def test_a_first_empty_view_is_applied(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), sync(1))
    assert client.answer("").first
    stream.request()
    assert client.client.status().applied.revision == 1


def test_an_equal_view_of_a_new_stream_leads_to_no_call(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    view = [reset(), service("api"), service("web"), endpoint("web", "b", "10.0.0.2")]
    stream = watcher.stream()
    stream.batch(*view, sync(1))
    before = client.answer("api:, web: b 10.0.0.2").view
    stream.end()
    stream = watcher.stream()
    stream.batch(*view, sync(2))
    stream.batch(endpoint("web", "a", "10.0.0.1"), sync(3))
    change = client.answer("api:, web: a 10.0.0.1 b 10.0.0.2")
    assert change.touched == ["default/web"]
    assert change.view.services["default/api"] is before.services["default/api"]
    assert list(before.services["default/web"].endpoints) == ["b"]


def test_the_next_batch_is_requested_after_the_call(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    for revision in range(1, 4):
        stream.batch(reset(), service(f"web{revision}"), sync(revision))
        change = client.calls.get(timeout=PATIENCE)
        assert stream.received.empty(), "a batch was requested before the previous one was applied"
        client.calls.put(change)
        client.answer(f"web{revision}:")


def test_a_request_names_the_node_and_the_features(watcher: FakeWatcher, start: Any) -> None:
    start(service_proxy_name="other")
    assert watcher.stream().request() == api_pb2.WatchReq(
        NodeName="n1",
        ServiceProxyName="other",
        Features=[api_pb2.Extended, api_pb2.NodeItem],
        Subscriber=api_pb2.Subscriber(Name="python-client"),
    )


def test_unknown_sets_and_operations_are_ignored(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    # Field 199, which no version has, with the bytes "new".
    future = api_pb2.OpItem.FromString(b"\xba\x0c\x03new")
    watcher.stream().batch(
        reset(), put(77, "something", b"\xff"), future, remove(77, "else"), service("web"), sync(1)
    )
    client.answer("web:")


@pytest.mark.parametrize(
    "faulty",
    [
        pytest.param([endpoint("gone", "a", "10.0.0.9")], id="an endpoint without its Service"),
        pytest.param(
            [remove(api_pb2.ServicesSet, "default/web"), endpoint("web", "b", "10.0.0.9")],
            id="an endpoint of a Service that was deleted",
        ),
        pytest.param([put(api_pb2.ServicesSet, "default/web", b"\xff")], id="a Service that cannot be decoded"),
        pytest.param([node("n2")], id="the Node of another node"),
        pytest.param([api_pb2.OpItem(Batch=api_pb2.BatchOp())], id="a packed message"),
    ],
)
def test_a_faulty_stream_is_closed_and_changes_nothing(watcher: FakeWatcher, start: Any, faulty: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), service("web"), endpoint("web", "a", "10.0.0.1"), sync(1))
    client.answer("web: a 10.0.0.1")
    stream.batch(*faulty, sync(2))
    stream.closed_by_client()
    watcher.stream().batch(reset(), service("api"), sync(3))
    client.answer("api:")


def test_a_stream_that_does_not_begin_with_reset_is_closed(watcher: FakeWatcher, start: Any) -> None:
    start()
    stream = watcher.stream()
    stream.batch(service("web"), sync(1))
    stream.closed_by_client()


def test_the_node_is_part_of_the_view(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), node("n1"), sync(1))
    change = client.answer("")
    assert change.node_changed and change.view.node.Zone == "z1"
    stream.batch(remove(api_pb2.NodesSet, "n1"), sync(2))
    change = client.answer("")
    assert change.view.node is None and change.touched == []


def test_the_watcher_chooses_the_time_of_the_next_stream(watcher: FakeWatcher, start: Any) -> None:
    def wait_an_hour(client: Client) -> None:
        client._reconnect = Reconnect(3600, 3600)

    start(wait_an_hour)
    # Without the trailer, the next stream would be opened within an hour.
    for is_ok in (False, True):
        watcher.stream().end(pushback="1", is_ok=is_ok)
    watcher.stream()


class Lost(grpc.RpcError):
    def __init__(self, pushback: Optional[str] = None) -> None:
        super().__init__()
        self.pushback = pushback

    def trailing_metadata(self) -> Any:
        return () if self.pushback is None else (("grpc-retry-pushback-ms", self.pushback),)


@pytest.mark.parametrize(
    ("error", "age", "want", "shortest", "longest"),
    [
        pytest.param(Lost(), None, "lost", 0, 1, id="a lost stream waits for a random part of a second"),
        pytest.param(ConnectionRefusedError(), None, "lost", 0.5, 1, id="nobody listens"),
        pytest.param(Lost("40000"), None, "refused", 40, 40, id="a busy watcher names the delay"),
        pytest.param(Lost("999999999"), None, "refused", 150, 150, id="a long delay is bounded"),
        pytest.param(Lost("-1"), None, "refused", 150, 150, id="a negative delay is the longest one"),
        pytest.param(Lost("0"), 2, "moved", 0, 0, id="a working stream moves at once"),
        pytest.param(Lost("0"), 0, "moved", 1e-9, 1, id="a stream that just began moves after a delay"),
    ],
)
def test_delays(error: Exception, age: Optional[float], want: str, shortest: float, longest: float) -> None:
    reconnect = Reconnect()
    reconnect.opening()
    if age is not None:
        reconnect._working_since = time.monotonic() - age
    kind, delay = reconnect.ended(error)
    assert kind == want
    assert shortest <= delay <= longest


def test_delays_double_to_half_a_minute_and_to_three_seconds_while_nobody_listens() -> None:
    reconnect = Reconnect()
    for _ in range(20):
        assert reconnect.ended(ConnectionRefusedError())[1] <= 3
        reconnect.ended(Lost())
    # A stream that works for less than 30 s does not shorten the delays.
    reconnect._working_since = time.monotonic() - 29
    reconnect.ended(Lost())
    assert reconnect._lost._step == 30
    reconnect._working_since = time.monotonic() - 30
    assert reconnect.ended(Lost())[1] <= 1


def test_a_client_connects_once_somebody_listens(start: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = start(api=f"127.0.0.1:{port}")
    while client.client.status().stream_error is None:
        time.sleep(0.001)
    assert isinstance(client.client.status().stream_error, ConnectionRefusedError)
    late = FakeWatcher(port)
    try:
        late.stream().batch(reset(), service("web"), sync(1))
        client.answer("web:")
        assert client.client.status().connected
    finally:
        client.client.stop()
        late.stop()


def test_an_address_where_nobody_listens_is_skipped(watcher: FakeWatcher, start: Any) -> None:
    def wait_an_hour(client: Client) -> None:
        client._reconnect = Reconnect(3600, 3600)

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    client = start(wait_an_hour, api=f"127.0.0.1:{port},{watcher.address}")
    watcher.stream().batch(reset(), service("web"), sync(1))
    client.answer("web:")


@pytest.mark.parametrize("is_refused", [False, True])
def test_the_next_stream_prefers_another_watcher(watcher: FakeWatcher, start: Any, is_refused: bool) -> None:
    other = FakeWatcher()
    streams: queue.Queue[Any] = queue.Queue()
    watcher._streams = other._streams = streams
    client = start(api=f"{watcher.address},{other.address}")
    try:
        last = None
        for _ in range(6):
            stream = streams.get(timeout=PATIENCE)
            assert stream.watcher is not last, "the client returned to the watcher that had ended its stream"
            last = stream.watcher
            if is_refused:
                stream.end(pushback="1")
                continue
            stream.batch(reset(), sync(1))
            if client.client.status().applied is None:
                client.answer("")
            stream.request()
            stream.end()
    finally:
        client.client.stop()
        other.stop()


def test_a_failed_call_is_repeated_with_the_newest_view(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), service("web"), sync(1))
    failure = OSError("no space left")
    client.answer("web:", failure)
    # The failed state does not keep the next one away.
    stream.request()
    status = client.client.status()
    assert status.error is failure and status.failing_since is not None and status.applied is None
    client.answer("web:", failure)
    stream.send(service("api"), sync(2))
    change = client.answer_until("api:, web:", failure)
    # `touched` begins at the last success.
    assert change.first and change.touched == ["default/api", "default/web"]
    stream.request()
    status = client.client.status()
    assert status.error is None and status.failing_since is None and status.applied is change.view


def test_a_signal_handler_stops_the_client_after_the_running_call(watcher: FakeWatcher) -> None:
    calls = []

    def show(view: View) -> None:
        signal.raise_signal(signal.SIGTERM)
        calls.append(view)

    client = Client(Options(node_name="n1", api=watcher.address, on_state=show))
    previous = signal.signal(signal.SIGTERM, lambda *_: client.stop())
    threading.Thread(target=lambda: watcher.stream().batch(reset(), sync(1))).start()
    try:
        client.run()
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert len(calls) == 1


def test_a_signal_just_before_the_thread_waits_stops_the_client() -> None:
    client = Client(Options(node_name="n1", api="unix:///nowhere", token_file="/nowhere", on_state=print))
    running = threading.Thread(target=client.run, daemon=True)

    class Signalled(threading.Condition):
        def wait(self, timeout: Optional[float] = None) -> bool:
            if threading.current_thread() is running:
                client.stop()
            return super().wait(timeout)

    client._changed = Signalled()
    running.start()
    running.join(PATIENCE)
    assert not running.is_alive()


def test_results_are_acknowledged(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    acks = {"TakesAcks": True, "AckIntervalMs": 1}
    stream = watcher.stream()
    stream.batch(reset(), service("web"), sync(7, **acks))
    client.answer("web:")
    ack = stream.ack()
    assert (ack.Applied, ack.Failed, ack.Error) == (7, 0, "")
    stream.send(service("api"), sync(8, **acks))
    client.answer("api:, web:", ValueError("ä" * 2000))
    ack = stream.ack()
    assert (ack.Applied, ack.Failed, ack.Error) == (7, 8, "ä" * 1000)
    # The next stream, perhaps of a restarted watcher, begins with the failure.
    stream.end()
    stream = watcher.stream()
    assert len(stream.request().LastFailure.Error) == 1000
    client.answer("api:, web:")
    stream.send(reset(), service("api"), service("web"), sync(9, **acks))
    # An equal view is in effect without a call.
    ack = stream.ack()
    # The failure may be repeated on the new stream before the call that succeeds.
    while (ack.Applied, ack.Failed) == (7, 8):
        ack = stream.ack()
    assert ack.Applied in (8, 9)


def test_acknowledgements_are_limited(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    acks = {"TakesAcks": True, "AckIntervalMs": 300}
    revisions: list[int] = []
    started_at = time.monotonic()
    revision = 1
    stream.batch(reset(), service("web0"), sync(1, **acks))
    client._results = queue.Queue()
    for _ in range(1000):
        client._results.put(None)
    while len(revisions) < 3:
        request = stream.received.get(timeout=PATIENCE)
        if request.HasField("Ack"):
            revisions.append(request.Ack.Applied)
        else:
            revision += 1
            stream.send(service(f"web{revision % 100}"), remove(api_pb2.ServicesSet, f"default/web{(revision - 1) % 100}"),
                        sync(revision, **acks))
            time.sleep(0.002)
    assert time.monotonic() - started_at >= 0.6
    # Each covers everything that was applied in between.
    assert revisions[2] >= revisions[0] + 4


def test_a_watcher_that_takes_no_acknowledgements_gets_none(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    for revision in range(1, 4):
        # `batch` fails if it finds an acknowledgement.
        stream.batch(reset(), service(f"web{revision}"), sync(revision))
        client.answer(f"web{revision}:")


def test_an_older_state_is_refused(watcher: FakeWatcher, start: Any) -> None:
    client = start()
    stream = watcher.stream()
    stream.batch(reset(), service("new"), at(20))
    client.answer("new:")
    stream.end()
    stream = watcher.stream()
    stream.batch(reset(), service("old"), at(19))
    stream.closed_by_client()
    stream = watcher.stream()
    assert isinstance(client.client.status().stream_error, OlderState)
    stream.batch(reset(), service("newer"), at(21))
    client.answer("newer:")


def test_an_older_state_is_accepted_if_nothing_newer_is_offered(watcher: FakeWatcher, start: Any) -> None:
    def accept_soon(client: Client) -> None:
        client._gate.accept_after = 0.3

    client = start(accept_soon)
    stream = watcher.stream()
    stream.batch(reset(), service("new"), at(20))
    client.answer("new:")
    stream.end()
    refused_at = None
    while client.calls.empty():
        stream = watcher.stream()
        stream.batch(reset(), service("old"), at(19))
        refused_at = refused_at or time.monotonic()
        assert time.monotonic() - refused_at < PATIENCE, "the state was not accepted"
        while client.calls.empty() and not stream._closed.is_set():
            time.sleep(0.001)
    client.answer("old:")
    assert refused_at is not None and time.monotonic() - refused_at >= 0.29


def version(source: str, services: int, current: int = 0) -> Optional[api_pb2.Position]:
    position = api_pb2.Position(Source=source, Services=services, CurrentServices=current)
    return position_of(api_pb2.EmptyOp(Instance="i1", Position=position))


@pytest.mark.parametrize(
    ("offered", "held", "want"),
    [
        pytest.param(version("kube:1", 100, 180), version("kube:1", 150, 150), "covers", id="the current version counts"),
        pytest.param(version("kube:1", 100), version("kube:1", 150), "behind", id="without one, the last change counts"),
        pytest.param(version("kube:2", 100), version("kube:1", 10), "foreign", id="another cluster"),
        pytest.param(version("kube", 9), version("kube:1", 10), "behind", id="a cluster that may be the same"),
        pytest.param(version("i2", 1), version("", 10), "unrelated", id="another watcher's files"),
        pytest.param(version("i1", 1), version("", 10), "behind", id="the files of the same watcher"),
        pytest.param(None, version("kube:1", 10), "unrelated", id="a watcher without positions"),
    ],
)
def test_positions(offered: Any, held: Any, want: str) -> None:
    assert relate(offered, held) == want


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl not found")
def test_tls_files_and_tokens_are_read_again(tmp_path: Path) -> None:
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    certificates = {name: make_certificate(tmp_path, name) for name in ("one", "two")}

    def install(name: str) -> Any:
        key, certificate = certificates[name]
        ca.write_bytes(certificate)
        token.write_text(f"{name}\n")
        return grpc.ssl_server_certificate_configuration([(key, certificate)])

    current = [install("one")]
    watcher = FakeWatcher(credentials=grpc.dynamic_ssl_server_credentials(current[0], lambda: current[0]))
    client = Running(f"https://{watcher.address}", tls_ca=str(ca), token_file=str(token))
    try:
        for name in ("one", "two"):
            stream = watcher.stream()
            stream.batch(reset(), service(name), sync(1))
            client.answer(f"{name}:")
            assert ("authorization", f"Bearer {name}") in [tuple(one) for one in stream.context.invocation_metadata()]
            if name == "one":
                current[0] = install("two")
            stream.end()
    finally:
        client.stop()
        watcher.stop()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl not found")
@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("tls_cert", b"", id="a certificate that is being written"),
        pytest.param("token_file", b"", id="an empty token"),
        pytest.param("token_file", b"one\ntwo", id="a token of two lines"),
        pytest.param("token_file", "tök".encode(), id="a token outside of ASCII"),
        pytest.param("token_file", b"\xff", id="a token that is not text"),
    ],
)
def test_an_unusable_file_is_read_again(tmp_path: Path, name: str, content: bytes) -> None:
    key, certificate = make_certificate(tmp_path, "one")
    token = tmp_path / "token"
    token.write_text("one")
    files = {"tls_cert": tmp_path / "one.crt", "tls_key": tmp_path / "one.key", "token_file": token}
    (tmp_path / "ca").write_bytes(certificate)
    good = files[name].read_bytes()
    files[name].write_bytes(content)
    watcher = FakeWatcher(credentials=grpc.ssl_server_credentials([(key, certificate)]))
    options = {option: str(path) for option, path in files.items()}
    client = Running(f"https://{watcher.address}", tls_ca=str(tmp_path / "ca"), **options)
    try:
        while client.client.status().stream_error is None:
            time.sleep(0.001)
        assert str(files[name]) in str(client.client.status().stream_error)
        files[name].write_bytes(good)
        watcher.stream().batch(reset(), service("web"), sync(1))
        client.answer("web:")
    finally:
        client.stop()
        watcher.stop()


def make_certificate(folder: Path, name: str) -> tuple[bytes, bytes]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.crt"
    subject = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command = ["openssl", "req", "-x509", *curve, *subject, "-keyout", str(key), "-out", str(certificate)]
    ended = subprocess.run(command, capture_output=True)
    assert ended.returncode == 0, ended
    return key.read_bytes(), certificate.read_bytes()


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"node_name": ""}, "node_name"),
        ({"on_state": None}, "on_state"),
        ({"api": "ftp://a"}, "not an address"),
        ({"api": "10.0.0.1:0"}, "invalid port"),
        ({"api": "10.0.0.1:65536"}, "invalid port"),
        ({"api": "10.0.0.1:1", "token_file": "/token"}, "plain TCP"),
        ({"api": "http://a:1", "tls_ca": "/ca"}, "disables TLS"),
        ({"tls_key": "/key"}, "tls_cert"),
    ],
)
def test_invalid_options_are_rejected(options: Any, want: str) -> None:
    with pytest.raises(ValueError, match=want):
        Client(Options(**{"node_name": "n1", "on_state": print, **options}))


def test_addresses_have_a_default_port_and_may_be_sockets() -> None:
    targets = [one.target for one in parse_api("unix:///run/kpng.sock,[::1]:1, a", Credentials(ca="/ca", token="/token"))]
    assert targets == ["unix:/run/kpng.sock", "[::1]:1", "a:12090"]


@pytest.mark.skipif("KPNG_DESCRIPTORS" not in os.environ, reason="KPNG_DESCRIPTORS is not set")
@pytest.mark.parametrize("generated", [api_pb2, plan_pb2])
def test_generated_code_is_up_to_date(generated: Any) -> None:
    """KPNG_DESCRIPTORS names a file that `buf build` made from the proto files."""
    files = descriptor_pb2.FileDescriptorSet.FromString(Path(os.environ["KPNG_DESCRIPTORS"]).read_bytes())
    ours = descriptor_pb2.FileDescriptorProto()
    generated.DESCRIPTOR.CopyToProto(ours)
    wanted = next(file for file in files.file if file.name == ours.name)
    for file in (ours, wanted):
        # protoc writes names for JSON only where they are asked for.
        for message in file.message_type:
            clear_json_names(message)
    assert ours == wanted


def clear_json_names(message: descriptor_pb2.DescriptorProto) -> None:
    for field in message.field:
        field.ClearField("json_name")
    for nested in message.nested_type:
        clear_json_names(nested)
