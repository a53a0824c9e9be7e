"""The view of a node, and its changes from one complete state to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Optional

from google.protobuf.message import DecodeError

from kpng.localv1 import api_pb2


@dataclass(frozen=True)
class Service:
    """A Service with its endpoints. It never changes; its messages must not be changed either."""

    proto: api_pb2.Service
    endpoints: Mapping[str, api_pb2.Endpoint]
    """Endpoints in the order of their keys, which are unique in the Service and have no other meaning.

    Before it uses an endpoint, a program must look at `Use`: an endpoint in neither set gets no new traffic.
    """


@dataclass(frozen=True)
class View:
    """The complete state of a node. It never changes; two views share the Services that are equal in both."""

    services: Mapping[str, Service] = field(default_factory=dict)
    """Services by "namespace/name"."""
    node: Optional[api_pb2.Node] = None
    """None if the cluster does not know the node."""
    revision: int = 0
    """Counts the states of the watcher's run `instance`. 0 and "" from a Go watcher."""
    instance: str = ""


class StreamError(Exception):
    """What the watcher sent is invalid or cannot be used. The stream is closed; the view remains."""


class StagedView:
    """A view while a batch changes it. The view before the batch remains as it is."""

    def __init__(self, base: View, node_name: str, is_reset: bool = False) -> None:
        self.is_reset = is_reset
        self._base = base
        self._node_name = node_name
        self._node = base.node
        # Changed Services, copied from the base; None for a deleted one.
        self._services: dict[str, Optional[_StagedService]] = {}

    def put(self, value: api_pb2.Value) -> None:
        """Puts an item. Items of an unknown kind come from a newer watcher, and are ignored."""
        kind, path = value.Ref.Set, value.Ref.Path
        try:
            if kind == api_pb2.ServicesSet:
                self._put_service(path, api_pb2.Service.FromString(value.Bytes))
            elif kind == api_pb2.EndpointsSet:
                self._put_endpoint(path, api_pb2.Endpoint.FromString(value.Bytes))
            elif kind == api_pb2.NodesSet:
                self._put_node(api_pb2.Node.FromString(value.Bytes))
        except DecodeError as error:
            raise StreamError(f"the watcher sent an invalid item {path!r}: {error}") from error

    def delete(self, ref: api_pb2.Ref) -> None:
        """Deletes an item. Items that the view does not contain are ignored."""
        if ref.Set == api_pb2.ServicesSet:
            self._services[ref.Path] = None
        elif ref.Set == api_pb2.EndpointsSet:
            service_path, key = _split(ref.Path)
            service = self._service(service_path)
            if service is not None:
                service.endpoints.pop(key, None)
        elif ref.Set == api_pb2.NodesSet:
            self._node = None

    def finish(self, before: View, mark: api_pb2.EmptyOp) -> tuple[View, set[str]]:
        """Returns the complete view, and the keys of the Services in which it differs from `before`."""
        services = dict(self._base.services)
        touched: set[str] = set()
        for path, staged in self._services.items():
            old = before.services.get(path)
            if staged is None:
                services.pop(path, None)
            else:
                after = Service(staged.proto, {key: staged.endpoints[key] for key in sorted(staged.endpoints)})
                services[path] = old if old is not None and old == after else after
            if services.get(path) is not old:
                touched.add(path)
        if self.is_reset:
            touched.update(path for path in before.services if path not in services)
        node = before.node if before.node == self._node else self._node
        return View(services, node, mark.Revision, mark.Instance), touched

    def _put_service(self, path: str, message: api_pb2.Service) -> None:
        service = self._service(path)
        if service is None:
            self._services[path] = _StagedService(message, {})
        else:
            service.proto = message

    def _put_endpoint(self, path: str, message: api_pb2.Endpoint) -> None:
        service_path, key = _split(path)
        service = self._service(service_path)
        if service is None:
            raise StreamError(f"endpoint {path!r} arrived without its Service")
        service.endpoints[key] = message

    def _put_node(self, message: api_pb2.Node) -> None:
        if message.Name != self._node_name:
            raise StreamError(f"Node {message.Name!r} arrived at node {self._node_name!r}")
        self._node = message

    def _service(self, path: str) -> Optional[_StagedService]:
        """Returns the copy of a Service that this batch may change; None if the view does not contain the Service."""
        if path not in self._services:
            service = self._base.services.get(path)
            if service is None:
                return None
            self._services[path] = _StagedService(service.proto, dict(service.endpoints))
        return self._services[path]


@dataclass
class _StagedService:
    proto: api_pb2.Service
    endpoints: dict[str, api_pb2.Endpoint]


def _split(path: str) -> tuple[str, str]:
    """Returns the path of an endpoint's Service, and the endpoint's key, which may contain slashes."""
    namespace, _, rest = path.partition("/")
    name, _, key = rest.partition("/")
    return f"{namespace}/{name}", key


def read_batch(
    ops: Iterable[api_pb2.OpItem], view: View, node_name: str, is_first: bool
) -> tuple[StagedView, api_pb2.EmptyOp]:
    """Reads operations up to Sync. Raises StreamError for an invalid one, and at the end of the stream."""
    batch = StagedView(view, node_name)
    for item in ops:
        kind = item.WhichOneof("Op")
        if kind == "Reset":
            # The new state is built beside the old one: only Sync says that it is complete.
            batch = StagedView(View(), node_name, is_reset=True)
        elif kind == "Set":
            batch.put(item.Set)
        elif kind == "Delete":
            batch.delete(item.Delete)
        elif kind == "Sync":
            if is_first and not batch.is_reset:
                raise StreamError("the watcher did not start the stream with Reset")
            return batch, item.Sync
        elif kind is not None:
            raise StreamError(f"the watcher sent {kind}, which was not requested")
        # An operation without a known kind comes from a newer watcher.
    raise StreamError("the watcher ended the stream")
