import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { web } from "../scenario/build.ts";
import { balancer, everywhere, inside, nodePort } from "../scenario/everywhere.ts";
import { clusterIP, n1 } from "../scenario/packet.ts";
import { kpngEbpf } from "./backend/kpng-ebpf.ts";
import type { KpngProxy } from "./backend/kpng-proxy.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";
import { Traffic } from "./traffic.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;

describe.skipIf(whyNot !== undefined)(`traffic through kpng-ebpf continues${note}`, () => {
  let world: TwoNodes;
  let backend: KpngProxy;
  const args: string[] = [];
  const both = web(everywhere, ["b", "c"]);
  const ways = [inside, nodePort, balancer, { from: n1, to: clusterIP("web"), port: 80 }];

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world, { args });
    await backend.start({}, both);
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  /** Runs something beside traffic, which must not be affected. */
  async function expectUnnoticed(event: () => Promise<unknown>): Promise<void> {
    const traffic = await Traffic.start(world, both, ways);
    await event();
    const { wrong, answeredProbes } = await traffic.end();
    expect(wrong, backend.log()).toEqual([]);
    expect(answeredProbes).toBeGreaterThan(0);
  }

  test("while it is stopped, and through its start, which replaces the programs", () =>
    expectUnnoticed(() => backend.restart("SIGTERM")));

  test("when it is killed and restarted", () => expectUnnoticed(() => backend.restart("SIGKILL")));

  test("through maps of another size, which replace the old ones together with the programs", () =>
    expectUnnoticed(() => {
      args.push("--max-endpoints", "100000");
      return backend.restart();
    }));

  test("while sets of endpoints are replaced", () =>
    expectUnnoticed(async () => {
      for (let round = 0; round < 3; round++) {
        await backend.apply(web(everywhere, ["b", "c", "d"]));
        await backend.apply(both);
      }
    }));
});
