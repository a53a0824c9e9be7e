"""Writes Services of machines outside Kubernetes to a state file, which `kpng file` serves.

    python3 source.py registry.json state.json &
    kpng file -i state.json to-api

The registry says for each Service its address, its ports (with those of the machines), and which machines serve it:

    {"db": {"address": "10.96.0.80", "ports": {"5432": 15432}, "machines": {"10.1.0.7": "up", "10.1.0.8": "leaving"}}}

A leaving machine gets new connections only if no other one is left.
"""

import json
import os
import sys
import time


def service(name, entry):
    ports = [{"name": port, "port": int(port), "protocol": "TCP"} for port in entry["ports"]]
    spec = {"clusterIP": entry["address"], "clusterIPs": [entry["address"]], "ports": ports}
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata(name), "spec": spec}


def endpoint_slice(name, entry):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**metadata(name), "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv6" if ":" in entry["address"] else "IPv4",
        "ports": [{"name": port, "port": target, "protocol": "TCP"} for port, target in entry["ports"].items()],
        "endpoints": [
            {"addresses": [address], "conditions": {"ready": is_up, "serving": True, "terminating": not is_up}}
            for address, is_up in ((address, state == "up") for address, state in entry["machines"].items())
        ],
    }


def metadata(name):
    return {"name": name, "namespace": "default"}


def main(registry, state):
    written = None
    while True:
        with open(registry) as file:
            text = file.read()
        if text != written:
            items = [make(*entry) for entry in json.loads(text).items() for make in (service, endpoint_slice)]
            with open(state + ".new", "w") as file:
                json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
            # Replaced as a whole, so that kpng never reads half of it.
            os.replace(state + ".new", state)
            written = text
        time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
