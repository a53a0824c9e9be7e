import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { parseServer } from "@kpng/backend-ipvs/render/kernel-objects.ts";
import { checkPackets } from "@kpng/laboratory/check/check-packets.ts";
import { Traffic } from "@kpng/laboratory/check/traffic.ts";
import type { TwoNodes } from "@kpng/laboratory/check/two-nodes.ts";
import { named, publicAddress, type State, together, web } from "@kpng/laboratory/scenario/build.ts";
import type { ProxyProfile } from "@kpng/laboratory/scenario/deviations.ts";
import {
  clusterIP,
  loadBalancerIP,
  n1,
  nodeAddress,
  outside,
  type Packet,
  pod,
} from "@kpng/laboratory/scenario/packet.ts";
import { programFile } from "../../process/program-file.ts";

const options = { ports: [{ port: 80, nodePort: 30_080 }], loadBalancerIPs: [publicAddress(10)] };
const local = { number: 13, loadBalancerIPs: [publicAddress(13)], external: "Local" } as const;

/** Returns the state during a move, in which Service "web" has these endpoints. */
export function webWith(...endpoints: readonly ("b" | "c")[]): State {
  return together(web(options, endpoints), others);
}

const others = together(
  named("empty", { number: 12 }, []),
  named("local", local, ["b", "c"]),
  named("elsewhere", { ...local, number: 14, loadBalancerIPs: [publicAddress(14)] }, ["c"]),
);

/** State during a move. */
export const movingState = webWith("b", "c");

const packets: readonly Packet[] = [
  { from: pod("a"), to: clusterIP("web"), port: 80, goesTo: ["b", "c"], source: "kept" },
  { from: n1, to: clusterIP("web"), port: 80, goesTo: ["b", "c"] },
  { from: outside, to: nodeAddress, port: 30_080, goesTo: ["b", "c"], source: "masqueraded" },
  { from: outside, to: loadBalancerIP("web"), port: 80, goesTo: ["b", "c"], source: "masqueraded" },
  { from: outside, to: loadBalancerIP("local"), port: 80, goesTo: ["b"], source: "kept" },
  { from: pod("a"), to: clusterIP("empty"), port: 80, verdict: "refused" },
];

/** Virtual server of another program, which no proxy may touch. */
const foreign = "-t 203.0.113.9:80 -s lc";

/** Starts transfers and connections that must not notice a move. */
function startTraffic(world: TwoNodes): Promise<Traffic> {
  const ways = [
    { from: pod("a"), to: clusterIP("web"), port: 80, family: "v4" },
    { from: outside, to: loadBalancerIP("web"), port: 80, family: "v6" },
  ] as const;
  return Traffic.start(world, movingState, ways, { protocols: ["tcp"], toleratesDelay: true });
}

/** A node during a move, with traffic that must not notice it. */
export class MovingNode {
  readonly world: TwoNodes;
  readonly #wrong: string[] = [];
  readonly #traffic: Traffic;
  readonly #startMs = performance.now();

  private constructor(world: TwoNodes, traffic: Traffic) {
    this.world = world;
    this.#traffic = traffic;
  }

  /** Begins the traffic. A proxy must already serve `movingState`. */
  static async begin(world: TwoNodes): Promise<MovingNode> {
    const program = join(world.laboratory.folder, "kpng-ipvs");
    const text = `#!/bin/sh\nexec '${process.execPath}' '${programFile("backend-ipvs")}' "$@"\n`;
    await writeFile(program, text, { mode: 0o755 });
    const node = new MovingNode(world, await startTraffic(world));
    await node.type(`ipvsadm -A ${foreign}`);
    return node;
  }

  /** Types a command on the node. Errors: it fails. */
  type(command: string): Promise<string> {
    const { laboratory } = this.world;
    return laboratory.run("n1", ["sh", "-ec", `PATH="${laboratory.folder}:$PATH"; ${command}`]);
  }

  /** Runs a step beside more traffic, which begins with the proxy that serves now, and ends after the step. */
  async during(step: () => Promise<void>): Promise<void> {
    const traffic = await startTraffic(this.world);
    await step();
    this.#wrong.push(...(await traffic.end()).wrong);
  }

  /** Expects that packets are answered after a step, as a proxy does that has these exceptions. */
  async after(step: string, profile: ProxyProfile): Promise<void> {
    const lines = await checkPackets(this.world, { name: step, state: movingState, packets }, profile);
    this.#wrong.push(...lines.map((line) => `${step}: ${line}`));
    const seconds = ((performance.now() - this.#startMs) / 1_000).toFixed(0);
    process.stdout.write(`${seconds} s: ${step}\n`);
  }

  /** Expects no interface, address, ipset, chain or rule whose line matches. */
  async expectNone(step: string, pattern: RegExp): Promise<void> {
    const all = await this.type("ip -o address show; ip -o link show; ipset list -n; iptables-save; ip6tables-save");
    const lines = all.split("\n").filter((line) => pattern.test(line));
    this.#wrong.push(...lines.slice(0, 10).map((line) => `${step}: left: ${line}`));
  }

  /** Expects that kpng-ipvs has recorded all virtual servers except the foreign one. */
  async expectOurServers(step: string): Promise<void> {
    const sets = await this.type("ipset save");
    const isRecorded = (id: string) =>
      new RegExp(`^add KPNGIPVS-\\S+ ${RegExp.escape(parseServer(id)?.element ?? id)}$`, "m").test(sets);
    const others = (await this.servers()).filter((id) => !isRecorded(id));
    if (`${others}` !== "-t 203.0.113.9:80") this.#wrong.push(`${step}: virtual servers of others: ${others}`);
  }

  /** Expects no virtual server but the foreign one. */
  async expectNoServers(step: string): Promise<void> {
    const servers = await this.servers();
    if (`${servers}` !== "-t 203.0.113.9:80") this.#wrong.push(`${step}: virtual servers: ${servers}`);
  }

  /** Returns the virtual servers in the kernel. */
  async servers(): Promise<readonly string[]> {
    return [...(await this.type("ipvsadm -S -n")).matchAll(/^-A (.*?) -s /gm)].map(([, id = ""]) => id);
  }

  /** Ends the traffic; returns a line for everything that went wrong. */
  async end(): Promise<readonly string[]> {
    const { wrong, answeredProbes } = await this.#traffic.end();
    const servers = await this.type("ipvsadm -S -n");
    process.stdout.write(`${answeredProbes} short connections\n`);
    return [
      ...this.#wrong,
      ...wrong,
      ...(servers.includes(`-A ${foreign}\n`) ? [] : [`the foreign virtual server is gone: ${servers}`]),
    ];
  }
}
