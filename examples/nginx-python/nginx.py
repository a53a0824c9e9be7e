#!/usr/bin/env python3
"""Serves a node's Services with nginx: writes its `stream` configuration from a plan, and reloads nginx.

Run by kpng-callout after each change, with the whole plan on standard input (proto/kpng/plan/v1/plan.proto):

    kpng-callout --callout-input plan --callout ./nginx.py --callout-arg /etc/nginx/kpng --callout-arg "nginx -s reload"
"""

import json
import os
import re
import subprocess
import sys


def host(address):
    return f"[{address}]" if ":" in address else address


def render(service, node):
    """Returns the configuration of one Service in one family."""
    return "".join(
        render_frontend(port, frontend, node) for port in service["ports"] for frontend in port["frontends"]
    )


def render_frontend(port, frontend, node):
    # nginx replaces the source address, so every client is treated as a client from outside the cluster.
    route = frontend["outside"]
    everywhere = ["0.0.0.0" if node["family"] == "FAMILY_IPV4" else "::"]
    of_node = everywhere if node["isAllNodePortAddresses"] else node["nodePortAddresses"]
    addresses = [frontend["address"]] if frontend["address"] else of_node
    protocol = port["protocol"].removeprefix("PROTOCOL_")
    if route["action"] != "ACTION_BALANCE" or protocol == "SCTP" or not addresses:
        return ""
    endpoints = port["local" if route["set"] == "ENDPOINT_SET_LOCAL" else "cluster"]
    kind = frontend["kind"].removeprefix("FRONTEND_KIND_").lower()
    upstream = re.sub("[/:]", ".", ".".join([port["name"], protocol, kind, addresses[0]]))
    udp = " udp" if protocol == "UDP" else ""
    lines = [
        f"upstream {upstream} {{",
        *(["  hash $remote_addr;"] if port["affinitySeconds"] else []),
        *(f"  server {host(each['address'])}:{each['port']};" for each in endpoints),
        "}",
        "server {",
        *(f"  listen {host(address)}:{frontend['port']}{udp};" for address in addresses),
        *(f"  allow {source};" for source in frontend["sources"]),
        *(["  deny all;"] if frontend["sources"] else []),
        f"  proxy_pass {upstream};",
        "}\n",
    ]
    return "\n".join(lines)


def main(folder, reload):
    operations = [json.loads(line) for line in sys.stdin]
    nodes = {each["node"]["family"]: each["node"] for each in operations if "node" in each}
    services = [each["service"] for each in operations if "service" in each]
    services.sort(key=lambda each: (each["family"], each["namespace"], each["name"]))
    text = "".join(render(service, nodes[service["family"]]) for service in services)
    path = os.path.join(folder, "services.conf")
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.replace(f"{path}.new", path)
    subprocess.run(reload, shell=True, check=True)


main(*sys.argv[1:])
