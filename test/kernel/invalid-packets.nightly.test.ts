import type { CommandProxy } from "@kpng/laboratory/check/command-proxy.ts";
import { buildTwoNodes, type TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { named, publicAddress } from "@kpng/laboratory/scenario/build.ts";
import { addressOf, loadBalancerIP, outside } from "@kpng/laboratory/scenario/packet.ts";
import { families, outsideAddress } from "@kpng/laboratory/scenario/places.ts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { describePackets } from "./describe-packets.ts";

/** The client's address is kept, so only the connection's own entry translates packets of the pod back. */
const state = named("local", { loadBalancerIPs: [publicAddress(10)], external: "Local" }, ["b"]);

describePackets("packets of unknown connections and kpng-iptables", () => {
  let world: TwoNodes;
  let backend: CommandProxy;
  let lastId = 2_000_000;
  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngIptables(world);
    // The kernel then treats a segment of an unknown connection as INVALID, and not as the start of a new one.
    await world.laboratory.run("n1", ["sh", "-c", "echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose"]);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /** Returns a TCP counter of a namespace: OutRsts (resets sent) or RetransSegs (segments retransmitted). */
  async function counterOf(namespace: string, counter: string): Promise<number> {
    const lines = (await world.laboratory.run(namespace, ["cat", "/proc/net/snmp"])).split("\n");
    const [names = [], values = []] = lines.filter((line) => line.startsWith("Tcp:")).map((line) => line.split(" "));
    return Number(values[names.indexOf(counter)]);
  }

  test.each(families)("IP%s: are dropped before they reach the client from an unknown address", async (family) => {
    await backend.start({}, state);
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
    // Pod b gets no acknowledgement and retransmits. The client would reset a segment from an unknown address.
    await expect
      .poll(async () => (await counterOf("b", "RetransSegs")) - repeated, { timeout: 30_000 })
      .toBeGreaterThan(2);
    expect(await counterOf("client", "OutRsts")).toBe(resets);
    await client.send({ kind: "end", id });
  });
});
