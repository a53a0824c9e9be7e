import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ownProxies, profileOf } from "../../../../test/kernel/backend/kpng-proxy.ts";
import { describePackets } from "../../../../test/kernel/describe-packets.ts";
import { programFile } from "../../../../test/process/program-file.ts";
import { CommandProxy } from "./command-proxy.ts";
import { PacketRun, packetCases } from "./packet-cases.ts";
import { served, servedWays } from "./served-state.ts";
import { WatcherStates } from "./states.ts";
import { Traffic } from "./traffic.ts";
import { buildTwoNodes, type TwoNodes } from "./two-nodes.ts";

describePackets("traffic of a case that fails", () => {
  let world: TwoNodes;
  beforeAll(async () => {
    world = await buildTwoNodes({ answerMs: 100, families: ["v4"] });
  });
  afterAll(() => world?.close());

  /** Sockets of pod a, which has the sender of a flow. */
  const sockets = async () => (await world.laboratory.run("a", ["cat", "/proc/net/udp"])).trim().split("\n").length;

  test("ends if it cannot start", async () => {
    const before = await sockets();
    await expect(Traffic.start(world, served.state, servedWays.slice(0, 1))).rejects.toThrow("no answer at the start");
    expect(await sockets()).toBe(before);
  });

  test("ends if the proxy does not start again", async () => {
    const before = await sockets();
    const states = await WatcherStates.start(world.laboratory, { kpng: [process.execPath, programFile("cli")] });
    const started = join(world.laboratory.folder, "started");
    const once = `test ! -e ${started} && touch ${started} && exec "$0" "$@"`;
    const { command, cleanup, loseRules } = ownProxies.nft;
    const options = { command: ["sh", "-c", once, ...command], cleanup, loseRules, profile: profileOf(ownProxies.nft) };
    await using proxy = await CommandProxy.open(world, states, { ...options, timeoutMs: 20_000 });
    const run = await PacketRun.begin(world, proxy);
    const restart = packetCases.find(({ id }) => id === "continuity/restart");
    await expect(restart?.run(run)).rejects.toThrow("the proxy has ended with exit status 1");
    expect(await sockets()).toBe(before);
    // Another case with the same scenario must not replace the file that explains this one.
    const explained = [await run.explain(["wrong"], served), await run.explain(["lost"], served)];
    const files = explained.map((lines) => lines.at(-1)?.replace(/^.*: /, "") ?? "");
    expect(files.map((file) => readFileSync(file, "utf8").split("\n")[0])).toEqual(["wrong", "lost"]);
  });
});
