import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { together, web } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, clusterIP, n1, pod } from "@kpng/laboratory/scenario/packet.ts";
import { families } from "@kpng/laboratory/scenario/places.ts";
import { beforeAll, expect, test, vi } from "vitest";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { describeBpf } from "./describe-bpf.ts";
import { useProxy } from "./use-proxy.ts";

const protocols = ["tcp", "udp"] as const;

/** Names of what answers when a sidecar or a cache stands between a client and a Service. */
const modes = [
  { sockets: "node", args: [], sidecar: "sidecar", cacheOfPods: "cache" },
  // Sockets of pods then choose an endpoint before any packet exists that could be redirected.
  { sockets: "all", args: ["--sockets", "all"], sidecar: "b", cacheOfPods: "b" },
] as const;

for (const mode of modes) {
  describeBpf(`redirects beside kpng-ebpf --sockets ${mode.sockets}`, () => {
    vi.setConfig({ testTimeout: 180_000, hookTimeout: 180_000 });
    const { world, proxy: backend } = useProxy((nodes) => kpngEbpf(nodes, { args: mode.args }));
    const state = together(web({ ports: [{ port: 80 }, { port: 53 }] }, ["b"]));

    beforeAll(() => backend().start({}, state));

    const run = (name: string, script: string) => world().laboratory.run(name, ["sh", "-e", "-c", script]);

    test(`connections of a pod with a sidecar go to: ${mode.sidecar}`, async () => {
      const { laboratory } = world();
      const [any4, any6] = ["127.0.0.1", "::1"];
      await AgentClient.start(laboratory, "a", [15_001], [any4, any6]).then((agent) => expect(agent.name).toBe("a"));
      for (const family of families) {
        const vip = addressOf(state, clusterIP("web"), family);
        const tool = family === "v4" ? "iptables" : "ip6tables";
        await run("a", `${tool} -t nat -A OUTPUT -p tcp -d ${vip} --dport 80 -j REDIRECT --to-ports 15001`);
        const client = world().agentOf(pod("a"));
        const answer = await client.askOnce({ protocol: "tcp", address: vip, port: 80, timeoutMs: 5_000 });
        const wanted = mode.sidecar === "sidecar" ? { name: "a", port: 15_001 } : { name: "b" };
        expect(answer, backend().log()).toMatchObject(wanted);
      }
    });

    test(`the cache of the node answers the node itself and UDP, and connections of pods are answered by: ${mode.cacheOfPods}`, async () => {
      const { laboratory } = world();
      const vips = families.map((family) => addressOf(state, clusterIP("web"), family));
      // As NodeLocal DNSCache does: its addresses on a device of its own, and packets to them without conntrack.
      await run("n1", "ip link add nodelocaldns type veth peer name nodelocaldns1; ip link set nodelocaldns up");
      for (const [at, vip] of vips.entries()) {
        await run("n1", `ip address add ${vip} dev nodelocaldns ${at === 0 ? "" : "nodad"}`);
        const tool = at === 0 ? "iptables" : "ip6tables";
        for (const protocol of protocols) {
          const to = `-p ${protocol} -d ${vip} --dport 53 -j NOTRACK`;
          const from = `-p ${protocol} -s ${vip} --sport 53 -j NOTRACK`;
          await run(
            "n1",
            `${tool} -t raw -A PREROUTING ${to}; ${tool} -t raw -A OUTPUT ${to}; ${tool} -t raw -A OUTPUT ${from}`,
          );
        }
      }
      await AgentClient.start(laboratory, "n1", [53], vips);
      for (const vip of vips) {
        for (const protocol of protocols) {
          const askFrom = (from: typeof n1) =>
            world().agentOf(from).askOnce({ protocol, address: vip, port: 53, timeoutMs: 5_000 });
          expect(await askFrom(n1), `${protocol} ${backend().log()}`).toMatchObject({ name: "n1", port: 53 });
          const isCached = mode.cacheOfPods === "cache" || protocol === "udp";
          const wanted = isCached ? { name: "n1", port: 53 } : { name: "b" };
          expect(await askFrom(pod("a")), `${protocol} ${backend().log()}`).toMatchObject(wanted);
        }
      }
    });
  });
}
