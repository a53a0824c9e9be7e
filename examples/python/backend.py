"""A complete backend, made from proto/localv1/api.proto only: docs/writing-a-backend.md."""

import queue
import socket
import sys
import time

import grpc
from localv1 import api_pb2 as kpng
from localv1 import api_pb2_grpc as kpng_grpc


def follow(stub, node, apply):
    """Reads one stream until it breaks; calls apply(services, endpoints) at each sync marker."""
    requests = queue.SimpleQueue()
    request = kpng.WatchReq(NodeName=node)
    requests.put(request)
    services, endpoints = {}, {}  # by path, of this stream
    try:
        for op in stub.Watch(iter(requests.get, None)):
            match op.WhichOneof("Op"):
                case "Reset":
                    services, endpoints = {}, {}
                case "Set" if op.Set.Ref.Set == kpng.ServicesSet:
                    services[op.Set.Ref.Path] = kpng.Service.FromString(op.Set.Bytes)
                case "Set" if op.Set.Ref.Set == kpng.EndpointsSet:
                    endpoints[op.Set.Ref.Path] = kpng.Endpoint.FromString(op.Set.Bytes)
                case "Delete" if op.Delete.Set == kpng.ServicesSet:
                    services.pop(op.Delete.Path, None)
                case "Delete" if op.Delete.Set == kpng.EndpointsSet:
                    endpoints.pop(op.Delete.Path, None)
                case "Sync":
                    apply(services, endpoints)
                    requests.put(request)  # only now: the next batch
                # Anything else comes from a newer watcher: ignore it.
    finally:
        requests.put(None)


def show(services, endpoints):
    for path, service in sorted(services.items()):
        addresses = [a for key, e in sorted(endpoints.items()) if key.startswith(path + "/") for a in e.IPs.V4]
        print(path, list(service.IPs.ClusterIPs.V4), "->", addresses, flush=True)


api = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:12090"
node = sys.argv[2] if len(sys.argv) > 2 else socket.gethostname()
options = [("grpc.max_receive_message_length", 64 << 20)]
while True:
    try:
        with grpc.insecure_channel(api, options) as channel:
            follow(kpng_grpc.SetsStub(channel), node, show)
    except grpc.RpcError as error:
        # The result of the last show() stays in place.
        print(f"stream lost: {error.details()}", file=sys.stderr)
    time.sleep(1)
