import { join, resolve } from "node:path";
import { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import type { CommandResult } from "@kpng/laboratory/laboratory.ts";
import { Laboratory, ping } from "@kpng/laboratory/laboratory.ts";
import { buildNetwork, type Host, network, podA, podB } from "@kpng/laboratory/one-node.ts";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { serviceLine } from "../example/all-ip/node-state.ts";
import { describePackets } from "./describe-packets.ts";

const exampleFolder = resolve("examples/all-ip");

const external = { v4: "198.51.100.10", v6: "2001:db8:100::10" };
const other = { v4: "198.51.100.20", v6: "2001:db8:100::20" };
const foreignRule = "-A PREROUTING -p tcp -m tcp --dport 7 -j REDIRECT --to-ports 8";

/** Returns the state of a Service with both external IPs and these pods, as received by the backend of node n1. */
function state(name: string, addresses: { readonly v4: string; readonly v6: string }, pods: readonly Host[]): string {
  const endpoints = pods.flatMap((pod) => [pod.v4, pod.v6]);
  return `${serviceLine(name, [addresses.v4, addresses.v6], [...endpoints, { address: "10.1.2.13", isElsewhere: true }])}\n`;
}

describePackets("the all-IP example, with packets", () => {
  let laboratory: Laboratory;
  let outside: AgentClient;
  const agents = new Map<string, AgentClient>();

  beforeAll(async () => {
    laboratory = await Laboratory.open();
    await buildNetwork(laboratory, network);
    const starts = network.pods.map(({ name, v4, v6 }) => AgentClient.start(laboratory, name, [80, 5353], [v4, v6]));
    const clients = [network.node, network.client].map(({ name }) => AgentClient.start(laboratory, name));
    for (const agent of await Promise.all([...starts, ...clients])) agents.set(agent.name, agent);
    outside = agentOf(network.client);
    // The node and its pods route the external IPs through the outer link, like a default route.
    await laboratory.run("n1", ["ip", "route", "add", "198.51.100.0/24", "dev", "outside"]);
    await laboratory.run("n1", ["ip", "route", "add", "2001:db8:100::/64", "dev", "outside"]);
    await laboratory.run("n1", ["iptables-restore"], `*nat\n${foreignRule}\nCOMMIT\n`);
  });
  afterEach(async () => void (await run("", "--cleanup")));
  afterAll(async () => laboratory?.close());

  function agentOf({ name }: Host): AgentClient {
    const agent = agents.get(name);
    if (agent === undefined) throw new Error(`no agent in ${name}`);
    return agent;
  }

  async function run(input: string, ...options: readonly string[]): Promise<CommandResult> {
    return laboratory.tryRun("n1", [process.execPath, join(exampleFolder, "all-ip.ts"), ...options], input);
  }

  /** Applies a state; fails if it is not accepted. */
  async function apply(input: string): Promise<string> {
    const { exitCode, stdout, stderr } = await run(input);
    expect({ exitCode, stderr }).toEqual({ exitCode: 0, stderr: "" });
    return stdout;
  }

  async function expectSilence(address: string): Promise<void> {
    expect(await answers(address, outside, 300)).toEqual(["nobody"]);
  }

  /** Returns the nat tables of both families, without the lines that contain the time. */
  async function tables(): Promise<string> {
    const both = ["iptables-save", "ip6tables-save"].map((tool) => laboratory.run("n1", [tool, "-t", "nat"]));
    return (await Promise.all(both)).join("").replaceAll(/^#.*\n/gm, "");
  }

  /** Sends 16 packets and returns the names of the answering hosts, and the reasons of missing answers. */
  async function answers(address: string, client = outside, timeoutMs = 3_000): Promise<readonly string[]> {
    const replies = [80, 5353].flatMap((port) =>
      (["tcp", "udp"] as const).flatMap((protocol) =>
        Array.from({ length: 8 }, () => client.askOnce({ protocol, address, port, timeoutMs })),
      ),
    );
    const names = (await Promise.all(replies)).map((reply) => (reply.kind === "answer" ? reply.name : "nobody"));
    return [...new Set(names)].sort();
  }

  for (const family of ["v4", "v6"] as const) {
    test(`every protocol and port of a whole ${family} address goes to the pods on the node`, async () => {
      await apply(state("web", external, [podA, podB]));
      expect(await answers(external[family])).toEqual(["pod-a", "pod-b"]);
      expect(await ping(laboratory, network.client.name, external[family])).not.toBe(false);
    });

    test(`a pod reaches itself, and it and the node another pod, through the ${family} address`, async () => {
      await apply(state("web", external, [podA]));
      expect(await answers(external[family], agentOf(podA))).toEqual(["pod-a"]);
      await apply(state("web", external, [podB]));
      expect(await answers(external[family], agentOf(podA))).toEqual(["pod-b"]);
      expect(await answers(external[family], agentOf(network.node))).toEqual(["pod-b"]);
    });

    test(`a second Service has its own ${family} address, and its removal does not affect the first`, async () => {
      const second = state("mail", other, [podB]);
      await apply(second + state("web", external, [podA]));
      expect(await answers(external[family])).toEqual(["pod-a"]);
      expect(await answers(other[family])).toEqual(["pod-b"]);
      await apply(state("web", external, [podA]));
      await expectSilence(other[family]);
      expect(await answers(external[family])).toEqual(["pod-a"]);
    });
  }

  test("applying the same state again commits nothing, for any number of endpoints", async () => {
    for (const count of [1, 2, 3, 7]) {
      const many = Array.from({ length: count }, (_, index) => ({
        name: "",
        v4: `10.1.1.${index + 1}`,
        v6: `fd00::${index + 1}`,
      }));
      await apply(state("web", external, many));
      const before = await tables();
      expect(await apply(state("web", external, many))).toMatch(/v4: nothing to do.*\n.*v6: nothing to do/);
      expect(await tables()).toBe(before);
    }
  });

  test("--cleanup removes all of our rules and no others", async () => {
    await apply(state("web", external, [podA, podB]));
    expect((await run("", "--cleanup")).exitCode).toBe(0);
    expect(await tables()).not.toContain("KPNG");
    expect(await tables()).toContain(foreignRule);
  });

  test("--dry-run changes nothing and prints the input of iptables-restore", async () => {
    const before = await tables();
    const { stdout } = await run(state("web", external, [podA, podB]), "--dry-run");
    expect(await tables()).toBe(before);
    const [v4 = "", v6 = ""] = stdout.split(/(?=^# ip6tables-restore)/m);
    await laboratory.run("n1", ["iptables-restore", "--noflush"], v4);
    await laboratory.run("n1", ["ip6tables-restore", "--noflush"], v6);
    expect(await apply(state("web", external, [podA, podB]))).toMatch(/v4: nothing to do.*\n.*v6: nothing to do/);
  });

  test("the next run restores deleted rules", async () => {
    await apply(state("web", external, [podA]));
    const before = await tables();
    await laboratory.run("n1", ["iptables", "-t", "nat", "-D", "OUTPUT", "-j", "KPNG-ALLIP"]);
    await laboratory.run("n1", ["ip6tables", "-t", "nat", "-F", "KPNG-ALLIP"]);
    await apply(state("web", external, [podA]));
    expect(await tables()).toBe(before);
  });
});
