#!/usr/bin/env python3
"""A service proxy with nftables: makes rules from the plans of kpng-plan, which it starts with its own options.

    nft.py --api watcher.kpng:12090 --node-name n1 --cluster-cidr 10.244.0.0/16
    nft.py --cleanup

Each state replaces both tables in one transaction, so no packet meets half of it. proto/kpng/plan/v1/plan.proto explains
plans. For brevity, this example forgets clients with affinity at each change, and remembers them for each frontend; leaves out
whole addresses, the drop at unallocated service addresses, and UDP flows to frontends that are gone; serves health checks at
all addresses; and ends with kpng-plan. KPNG_PLAN is the command of kpng-plan, if it is not in PATH.
"""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TABLES = {"FAMILY_IPV4": ("ip", "ipv4_addr"), "FAMILY_IPV6": ("ip6", "ipv6_addr")}
MARK = "0x4000"


def nft(text):
    subprocess.run(["nft", "-f", "-"], input=text, text=True, check=True)


class Rules:
    """The rules of one family, in the syntax of nft."""

    def __init__(self, family, node):
        self.ip, self.address_type = TABLES[family]
        self.node = node
        self.chains = []
        self.by_address = []
        self.by_node_port = []
        self.cluster_ips = set()
        self.hairpin = set()

    def add(self, service):
        self.hairpin.update(service["hairpin"])
        for port in service["ports"]:
            for frontend in port["frontends"]:
                self.add_frontend(port, frontend)

    def add_frontend(self, port, frontend):
        protocol = port["protocol"].removeprefix("PROTOCOL_").lower()
        sources = ", ".join(frontend["sources"])
        pod = self.pod_match()

        def goto(sender):
            return f"goto {self.route(port, frontend, sender, protocol)}"

        routes = [
            *([f"{self.ip} saddr != {{ {sources} }} drop"] if sources else []),
            *([f"{pod} {goto('pod')}"] if pod else []),
            f"fib saddr type local {goto('node')}",
            goto("outside"),
        ]
        chain = self.chain(routes)
        if frontend["address"]:
            self.by_address.append(f"{frontend['address']} . {protocol} . {frontend['port']} : goto {chain}")
        else:
            self.by_node_port.append(f"{protocol} . {frontend['port']} : goto {chain}")
        if frontend["kind"] == "FRONTEND_KIND_CLUSTER_IP":
            self.cluster_ips.add(frontend["address"])

    def pod_match(self):
        if self.node.get("podCidr"):
            return f"{self.ip} saddr {self.node['podCidr']}"
        if self.node.get("podInterface"):
            return f"iifname {self.node['podInterface']}"
        if self.node.get("podInterfacePrefix"):
            return f"iifname {self.node['podInterfacePrefix']}*"
        return None

    def route(self, port, frontend, sender, protocol):
        """Returns a chain that does what the route of a sender says."""
        route = frontend[sender]
        if route["action"] == "ACTION_REFUSE":
            return "node_port_or_refuse" if frontend["address"] else "refuse"
        if route["action"] == "ACTION_DROP":
            return self.chain(["drop"])
        endpoints = port["local" if route["set"] == "ENDPOINT_SET_LOCAL" else "cluster"]
        mark = [f"meta mark set meta mark or {MARK}"] if route["isMasqueraded"] else []
        of_client, choices = [], []
        for at, endpoint in enumerate(endpoints):
            address = f"[{endpoint['address']}]" if self.ip == "ip6" else endpoint["address"]
            dnat = f"meta l4proto {protocol} dnat to {address}:{endpoint['port']}"
            if not port["affinitySeconds"]:
                choices.append(f"{at} : goto {self.chain([dnat])}")
                continue
            clients = f"clients{len(self.chains)}"
            definition = f"type {self.address_type}; flags dynamic, timeout; timeout {port['affinitySeconds']}s;"
            self.chains.append(f"set {clients} {{ {definition} }}")
            remember = f"update @{clients} {{ {self.ip} saddr }}"
            chosen = self.chain([remember, dnat])
            of_client.append(f"{self.ip} saddr @{clients} goto {chosen}")
            choices.append(f"{at} : goto {chosen}")
        return self.chain([*mark, *of_client, f"numgen random mod {len(endpoints)} vmap {{ {', '.join(choices)} }}"])

    def chain(self, rules):
        name = f"c{len(self.chains)}"
        self.chains.append(f"chain {name} {{ {'; '.join(rules)}; }}")
        return name

    def node_ports(self):
        """Returns the rules that serve node ports, at the addresses that have them."""
        at = "fib daddr type local"
        if not self.node["isAllNodePortAddresses"]:
            if not self.node["nodePortAddresses"]:
                return []
            at = f"{self.ip} daddr {{ {', '.join(self.node['nodePortAddresses'])} }}"
        loopback = "127.0.0.0/8" if self.ip == "ip" else "::1"
        return [f"{self.ip} daddr != {loopback} {at} meta l4proto . th dport vmap @by_node_port"]

    def text(self):
        pairs = ", ".join(f"{address} . {address}" for address in sorted(self.hairpin))
        services = [
            f"{self.ip} daddr . meta l4proto . th dport vmap @by_address",
            f"{self.ip} daddr @cluster_ips goto refuse",
            *self.node_ports(),
        ]
        masquerade = [
            f"meta mark and {MARK} == {MARK} masquerade",
            *([f"ct status dnat {self.ip} saddr . {self.ip} daddr {{ {pairs} }} masquerade"] if pairs else []),
        ]
        lines = [
            *self.chains,
            f"map by_address {{ type {self.address_type} . inet_proto . inet_service : verdict; {elements(self.by_address)} }}",
            f"map by_node_port {{ type inet_proto . inet_service : verdict; {elements(self.by_node_port)} }}",
            f"set cluster_ips {{ type {self.address_type}; {elements(sorted(self.cluster_ips))} }}",
            # A node port with the same number comes before an address whose Service has no endpoint.
            f"chain node_port_or_refuse {{ {'; '.join([*self.node_ports(), 'goto refuse'])}; }}",
            "chain refuse { meta l4proto tcp reject with tcp reset; reject; }",
            f"chain services {{ {'; '.join(services)}; }}",
            "chain prerouting { type nat hook prerouting priority -110; goto services; }",
            "chain output { type nat hook output priority -110; goto services; }",
            f"chain postrouting {{ type nat hook postrouting priority 90; {'; '.join(masquerade)}; }}",
        ]
        return f"{removal(self.ip)}table {self.ip} example {{\n" + "\n".join(lines) + "\n}\n"


def elements(items):
    return f"elements = {{ {', '.join(items)} }};" if items else ""


def removal(ip):
    return f"table {ip} example\ndelete table {ip} example\n"


def delete_stale_flows(services):
    """Deletes UDP flows to endpoints that no longer answer. Their clients would go on sending to a dead address."""
    answering = {}
    for service in services:
        for port in service["ports"]:
            if port["protocol"] == "PROTOCOL_UDP":
                for frontend in port["frontends"]:
                    # A node port answers at all addresses of the node, and is known by its port alone.
                    key = (service["family"], frontend["address"], frontend["port"])
                    answering[key] = {(each["address"], each["port"]) for each in port["answering"]}
    for family in TABLES:
        of_family = ["-f", family.removeprefix("FAMILY_").lower(), "-p", "udp"]
        found = subprocess.run(["conntrack", "-L", *of_family], capture_output=True, text=True).stdout
        for flow in re.findall(r"src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+).*?src=(\S+) dst=\S+ sport=(\d+)", found):
            source, to, source_port, to_port, endpoint, endpoint_port = flow
            if endpoint == to:
                continue  # no proxy has changed its destination
            alive = answering.get((family, to, int(to_port)), answering.get((family, "", int(to_port))))
            if alive is None or (endpoint, int(endpoint_port)) in alive:
                continue
            original = ["-s", source, "-d", to, "--sport", source_port, "--dport", to_port]
            subprocess.run(["conntrack", "-D", *of_family, *original], capture_output=True)


class HealthChecks:
    """Servers of the health-check node ports, by port."""

    def __init__(self):
        self.servers = {}
        self.counts = {}

    def set(self, counts):
        self.counts = counts
        for port in set(self.servers) - set(counts):
            server = self.servers.pop(port)
            server.shutdown()
            server.server_close()
        for port in set(counts) - set(self.servers):
            self.servers[port] = self.serve(port)

    def serve(self, port):
        checks = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                count = checks.counts.get(port, 0)
                self.send_response(200 if count > 0 else 503)
                self.end_headers()
                self.wfile.write(json.dumps({"localEndpoints": count}).encode())

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            address_family = socket.AF_INET6

        server = Server(("::", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def main(options):
    if options == ["--cleanup"]:
        return nft(removal("ip") + removal("ip6"))
    command = shlex.split(os.environ.get("KPNG_PLAN", "kpng-plan"))
    plans = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGTERM, lambda *_: plans.terminate())
    nodes, services, checks = {}, {}, HealthChecks()
    for line in plans.stdout:
        operation = json.loads(line)
        if "reset" in operation:
            nodes, services = {}, {}
        elif "node" in operation:
            nodes[operation["node"]["family"]] = operation["node"]
        elif "service" in operation:
            service = operation["service"]
            services[service["namespace"], service["name"], service["family"]] = service
        elif "delete" in operation:
            gone = operation["delete"]
            services.pop((gone["namespace"], gone["name"], gone["family"]), None)
        elif "sync" in operation:
            apply(nodes, services.values(), checks)
    return sys.exit(plans.wait())


def apply(nodes, services, checks):
    rules = {family: Rules(family, node) for family, node in nodes.items()}
    for service in services:
        rules[service["family"]].add(service)
    nft("".join(each.text() for each in rules.values()))
    health = [each["healthCheck"] for each in services if each.get("healthCheck")]
    checks.set({each["port"]: each["localEndpoints"] for each in health})
    delete_stale_flows(services)


main(sys.argv[1:])
