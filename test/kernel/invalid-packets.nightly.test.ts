import { existsSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parseRuleset } from "../packet-tracer/parse-ruleset.ts";
import { trace } from "../packet-tracer/trace.ts";
import { named, publicAddress } from "../scenario/build.ts";
import { addressOf, loadBalancerIP, outside } from "../scenario/packet.ts";
import { type Family, families, hosts, outsideAddress } from "../scenario/places.ts";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { kubeProxy, whyNoKubeProxy } from "./backend/kube-proxy.ts";
import type { RunningBackend } from "./backends.ts";
import { describeVariants } from "./describe-packets.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const backends = [
  { name: "kube-proxy", prefix: "KUBE", whyNot: await whyNoKubeProxy(), start: (world: TwoNodes) => kubeProxy(world) },
  {
    name: "kpng-iptables",
    prefix: "KPNG",
    start: (world: TwoNodes) => kpngIptables(world, { args: ["--iptables-sync-period", "0"] }),
  },
];
const hasConntrack = ["/usr/sbin/conntrack", "/sbin/conntrack", "/usr/bin/conntrack"].some((path) => existsSync(path));
const whyNoConntrack = hasConntrack ? undefined : "conntrack not found (Debian package conntrack)";
/**
 * State in which the client's address is kept, so only the connection's own entry translates packets of the pod back.
 */
const state = named("local", { loadBalancerIPs: [publicAddress(10)], external: "Local" }, ["b"]);

for (const { name, prefix, whyNot, start } of backends) {
  describeVariants(`packets of unknown connections and ${name}`, whyNot ?? whyNoConntrack, (variant) => {
    let world: TwoNodes;
    let backend: RunningBackend;
    let lastId = 2_000_000;
    beforeAll(async () => {
      world = await buildTwoNodes(variant);
      backend = await start(world);
      await backend.start({}, state);
      // The kernel then treats a segment of an unknown connection as INVALID, and not as the start of a new one.
      await world.laboratory.run("n1", ["sh", "-c", "echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose"]);
    });
    afterAll(async () => {
      await backend?.close();
      await world?.close();
    });

    /**
     * Deletes the conntrack entry of a connection over which pod b sends to the client, and waits until b has sent
     * more.
     *
     * Returns whether the client sent a reset, which is its answer to a segment from b's own, unknown address.
     */
    async function isResetAfterForgetting(family: Family): Promise<boolean> {
      const client = world.agentOf(outside);
      lastId += 1;
      const id = lastId;
      const [address, from] = [addressOf(state, loadBalancerIP("local"), family), outsideAddress[family]];
      await client.send({ kind: "open", id, protocol: "tcp", address, port: 80, from, isServerSending: true });
      await expect.poll(async () => (await client.send({ kind: "look", id })).answered).toBeGreaterThan(0);
      const resets = await counterOf("client", "OutRsts");
      const repeated = await counterOf("b", "RetransSegs");
      const whose = ["-f", family === "v4" ? "ipv4" : "ipv6", "-p", "tcp", "--orig-dst", address];
      await world.laboratory.run("n1", ["conntrack", "-D", ...whose]);
      const isReset = async () => (await counterOf("client", "OutRsts")) > resets;
      // b gets no acknowledgement and retransmits.
      const isOver = async () => (await isReset()) || (await counterOf("b", "RetransSegs")) >= repeated + 3;
      await expect.poll(isOver).toBe(true);
      const result = await isReset();
      await client.send({ kind: "end", id });
      return result;
    }

    /** Returns a TCP counter of a namespace: OutRsts (resets sent) or RetransSegs (segments retransmitted). */
    async function counterOf(namespace: string, counter: string): Promise<number> {
      const lines = (await world.laboratory.run(namespace, ["cat", "/proc/net/snmp"])).split("\n");
      const [names = [], values = []] = lines.filter((line) => line.startsWith("Tcp:")).map((line) => line.split(" "));
      return Number(values[names.indexOf(counter)]);
    }

    async function traced(family: Family) {
      const ruleset = parseRuleset((await world.rules())[family]);
      const node = { localCIDRs: [hosts.n1[family]], outInterface: () => "eth0" };
      const { [family]: source } = hosts.b;
      const { [family]: destination } = outsideAddress;
      const packet = {
        protocol: "tcp",
        source,
        destination,
        port: 20_000,
        inInterface: "cbr0",
        state: "INVALID",
      } as const;
      return trace(ruleset, node, packet);
    }

    // In this order: in the other one, the pod of the dropped connection would still retransmit when the rule is
    // disabled, and the client would answer.
    describe.each(families)("IP%s", (family) => {
      test("end the pod's connection without the rule that drops them", async () => {
        const tool = family === "v4" ? "iptables" : "ip6tables";
        const pass = [`${prefix}-FORWARD`, "-m", "conntrack", "--ctstate", "INVALID", "-j", "ACCEPT"];
        await world.laboratory.run("n1", [tool, "-I", ...pass]);
        expect(await isResetAfterForgetting(family)).toBe(true);
        expect(await traced(family)).toEqual([{ kind: "untouched", isAccepted: true }]);
        await world.laboratory.run("n1", [tool, "-D", ...pass]);
      });

      test("are dropped before they reach the client from an unknown address", async () => {
        expect(await isResetAfterForgetting(family)).toBe(false);
        expect(await traced(family)).toEqual([{ kind: "dropped" }]);
      });
    });
  });
}
