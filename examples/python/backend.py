"""Prints the Services of a node with the endpoints that get new traffic, as they change: docs/writing-a-backend.md."""

import os
import signal

import kpng


def show(change: kpng.Change) -> None:
    for path in change.touched:
        service = change.view.services.get(path)
        if service is None:
            print(path, "deleted", flush=True)
            continue
        addresses = [address for one in service.endpoints.values() if one.Use.Cluster for address in one.IPs.V4]
        print(path, list(service.proto.IPs.ClusterIPs.V4), "->", addresses, flush=True)


client = kpng.Client(
    kpng.Options(
        api=os.environ.get("KPNG_API", "127.0.0.1:12090"),
        node_name=os.environ["KPNG_NODE_NAME"],
        tls_ca=os.environ.get("KPNG_TLS_CA", ""),
        token_file=os.environ.get("KPNG_TOKEN_FILE", ""),
        on_change=show,
    )
)
# Ends after the running call. An exception would interrupt it.
signal.signal(signal.SIGTERM, lambda *_: client.stop())
client.run()
