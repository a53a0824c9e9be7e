"""A gRPC server whose streams the test serves itself."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Optional

import grpc
from kpng.localv1 import api_pb2

PATIENCE = 20.0
"""Time after which a test gives up, in seconds. No test waits for it to pass."""

_END = object()


class FakeStream:
    def __init__(self, requests: Any, context: Any) -> None:
        self.received: queue.Queue[Any] = queue.Queue()
        self.context = context
        self.watcher: Optional[FakeWatcher] = None
        self._out: queue.Queue[Any] = queue.Queue()
        self._closed = threading.Event()
        context.add_callback(self._on_end)
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def _read(self, requests: Any) -> None:
        try:
            for request in requests:
                self.received.put(request)
        except grpc.RpcError:
            pass
        except Exception:
            # grpcio raises a bare Exception in the request iterator when the call is cancelled.
            pass
        self.received.put(_END)

    def _on_end(self) -> None:
        self._closed.set()
        self._out.put(_END)

    def operations(self) -> Any:
        while (item := self._out.get(timeout=2 * PATIENCE)) is not _END:
            yield item

    def request(self) -> api_pb2.WatchReq:
        """Returns the next message, which must not be an acknowledgement."""
        request = self._next()
        assert not request.HasField("Ack"), f"acknowledgement instead of a request: {request}"
        return request

    def ack(self) -> api_pb2.Ack:
        while True:
            request = self._next()
            if request.HasField("Ack"):
                return request.Ack

    def _next(self) -> api_pb2.WatchReq:
        request = self.received.get(timeout=PATIENCE)
        assert request is not _END, "the client closed the stream"
        return request

    def send(self, *ops: api_pb2.OpItem) -> None:
        for op in ops:
            self._out.put(op)

    def batch(self, *ops: api_pb2.OpItem) -> api_pb2.WatchReq:
        """Waits for the next request, and answers it."""
        request = self.request()
        self.send(*ops)
        return request

    def end(self, pushback: Optional[str] = None, is_ok: bool = False) -> None:
        if not is_ok:
            self.context.set_code(grpc.StatusCode.UNAVAILABLE)
            self.context.set_details("ended by the test")
        if pushback is not None:
            self.context.set_trailing_metadata((("grpc-retry-pushback-ms", pushback),))
        self._out.put(_END)

    def closed_by_client(self) -> None:
        assert self._closed.wait(PATIENCE), "the client did not close the stream"


class FakeWatcher:
    def __init__(self, port: int = 0, credentials: Any = None) -> None:
        self._streams: queue.Queue[FakeStream] = queue.Queue()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=16))
        handler = grpc.stream_stream_rpc_method_handler(
            self._watch, api_pb2.WatchReq.FromString, api_pb2.OpItem.SerializeToString
        )
        generic = grpc.method_handlers_generic_handler("localv1.Sets", {"Watch": handler})
        self._server.add_generic_rpc_handlers((generic,))
        address = f"127.0.0.1:{port}"
        if credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, credentials)
        self.address = f"127.0.0.1:{self.port}"
        self._server.start()

    def _watch(self, requests: Any, context: Any) -> Any:
        stream = FakeStream(requests, context)
        stream.watcher = self
        self._streams.put(stream)
        yield from stream.operations()

    def stream(self) -> FakeStream:
        """Returns the next stream that a client opens."""
        return self._streams.get(timeout=PATIENCE)

    def stop(self) -> None:
        self._server.stop(None).wait()


def reset() -> api_pb2.OpItem:
    return api_pb2.OpItem(Reset=api_pb2.EmptyOp())


def sync(revision: int, **fields: Any) -> api_pb2.OpItem:
    return api_pb2.OpItem(Sync=api_pb2.EmptyOp(Revision=revision, Instance="run", **fields))


def at(version: int) -> api_pb2.OpItem:
    position = api_pb2.Position(Source="kube:1", Services=version, Slices=version, Nodes=version)
    return sync(version, Position=position)


def put(kind: int, path: str, data: bytes) -> api_pb2.OpItem:
    return api_pb2.OpItem(Set=api_pb2.Value(Ref=api_pb2.Ref(Set=kind, Path=path), Bytes=data))


def service(name: str) -> api_pb2.OpItem:
    message = api_pb2.Service(Namespace="default", Name=name)
    return put(api_pb2.ServicesSet, f"default/{name}", message.SerializeToString())


def endpoint(service_name: str, key: str, ip: str) -> api_pb2.OpItem:
    message = api_pb2.Endpoint(IPs=api_pb2.IPSet(V4=[ip]))
    return put(api_pb2.EndpointsSet, f"default/{service_name}/{key}", message.SerializeToString())


def node(name: str) -> api_pb2.OpItem:
    return put(api_pb2.NodesSet, name, api_pb2.Node(Name=name, Zone="z1").SerializeToString())


def remove(kind: int, path: str) -> api_pb2.OpItem:
    return api_pb2.OpItem(Delete=api_pb2.Ref(Set=kind, Path=path))
