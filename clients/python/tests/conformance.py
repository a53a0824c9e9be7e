"""A client for `kpng conformance protocol --report stdout`: prints each state that it has applied."""

from __future__ import annotations

import json
import os
import signal

import kpng


def show(view: kpng.View) -> None:
    services = {
        path: sorted(ip for one in service.endpoints.values() for ip in (*one.IPs.V4, *one.IPs.V6))
        for path, service in view.services.items()
    }
    print(json.dumps({"services": services}), flush=True)


options = kpng.Options(api=os.environ["KPNG_API"], node_name=os.environ["KPNG_NODE_NAME"], on_state=show)
client = kpng.Client(options)
signal.signal(signal.SIGTERM, lambda *_: client.stop())
client.run()
