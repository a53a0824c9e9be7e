import { once } from "node:events";
import { NodeProcess } from "@kpng/laboratory/node-process.ts";
import { web } from "@kpng/laboratory/scenario/build.ts";
import { n1, neighbour } from "@kpng/laboratory/scenario/packet.ts";
import { afterEach, beforeAll, expect, test } from "vitest";
import { programFile } from "../process/program-file.ts";
import { kpngIptables } from "./backend/kpng-proxy.ts";
import { describeVariants } from "./describe-packets.ts";
import { buildVariant } from "./laboratory/legacy-tools.ts";
import { useProxy } from "./use-proxy.ts";

const state = web({ ports: [{ port: 80, nodePort: 30_080 }] }, ["b"]);
const main = programFile("backend-iptables");
const address = "127.0.0.1";
const port = 8099;

/**
 * Program of a server that prints "listening" and answers only on the loopback address, like an administration port.
 */
const server = `
  require("node:net")
    .createServer((socket) => socket.on("error", () => {}).end(JSON.stringify({ name: "n1", port: ${port}, from: "" }) + "\\n"))
    .listen(${port}, "${address}", () => console.log("listening"));`;

describeVariants("a service bound to 127.0.0.1 and a neighbour of the node", (variant) => {
  const { world, proxy: backend } = useProxy(kpngIptables, () => buildVariant(variant));
  beforeAll(async () => {
    const { stdout } = world().laboratory.start("n1", [process.execPath, "-e", server]);
    if (stdout === null) throw new Error("the service has no output");
    await once(stdout, "data");
  });
  afterEach(async () => {
    await backend().stop();
    await backend().cleanUp();
    await setRouteLocalnet(0);
  });

  const sysctl = "/proc/sys/net/ipv4/conf/all/route_localnet";
  const setRouteLocalnet = (value: number) => world().laboratory.run("n1", ["sh", "-c", `echo ${value} >${sysctl}`]);
  const routeLocalnet = async () => Number(await world().laboratory.run("n1", ["cat", sysctl]));
  const ask = { protocol: "tcp", address, port } as const;
  const isReached = async () => {
    const { kind } = await world()
      .agentOf(neighbour)
      .askOnce({ ...ask, timeoutMs: 1_000 });
    return kind === "answer";
  };

  /** Returns how many of the neighbour's connections were answered while `act` ran. */
  async function answeredDuring(act: () => Promise<void>): Promise<number> {
    const stop = await world().agentOf(neighbour).startProbe({ protocol: "tcp", address, port });
    await act();
    return (await stop()).answered;
  }

  test("is reached with the sysctl and without the guard: the probe can succeed", async () => {
    await setRouteLocalnet(1);
    expect(await isReached()).toBe(true);
  });

  test("is never reached from the start, through SIGKILL and restart, to the end of the cleanup", async () => {
    const answered = await answeredDuring(async () => {
      await backend().start({}, state);
      expect(await routeLocalnet()).toBe(1);
      const nodePort = { ...ask, address, port: 30_080, timeoutMs: 3_000 };
      expect(await world().agentOf(n1).askOnce(nodePort)).toMatchObject({ name: "b" });
      await backend().restart("SIGKILL");
      await backend().stop();
      await backend().cleanUp();
    });
    expect(answered).toBe(0);
    expect(await routeLocalnet()).toBe(0);
    expect(await isReached()).toBe(false);
  });

  test("is not reached while a first start waits for a watcher: the sysctl follows the rules", async () => {
    const waiting = new NodeProcess(world().laboratory);
    waiting.start([process.execPath, main, "--api", "unix:///nonexistent/kpng.sock", "--node-name", "n1"]);
    try {
      await expect.poll(() => waiting.log()).toContain("stream lost");
      expect([await routeLocalnet(), await isReached()]).toEqual([0, false]);
    } finally {
      await waiting.stop();
    }
  });

  test("a restart without node ports on localhost keeps the guard", async () => {
    await backend().start({}, state);
    await backend().stop();
    const without = await kpngIptables(world(), { name: "none", args: ["--iptables-localhost-nodeports", "false"] });
    try {
      expect(await answeredDuring(() => without.start({}, state))).toBe(0);
      expect(await isReached()).toBe(false);
    } finally {
      await without.close();
    }
  });

  test("is not reached with a sysctl that was set before kpng started; a cleanup resets it", async () => {
    await setRouteLocalnet(1);
    await backend().start({}, state);
    await backend().restart();
    expect(await isReached()).toBe(false);
    await backend().stop();
    await backend().cleanUp();
    expect(await routeLocalnet()).toBe(0);
  });

  test("the last of two instances to be cleaned up resets the sysctl", async () => {
    const edge = await kpngIptables(world(), { name: "edge", serviceProxyName: "edge", firstMarkerPort: 31_000 });
    try {
      await backend().start({}, state);
      await edge.start({}, { services: [], slices: [] });
      const answered = await answeredDuring(async () => {
        await backend().stop();
        await backend().cleanUp();
        expect(await routeLocalnet()).toBe(1);
        await edge.stop();
        await edge.cleanUp();
      });
      expect([answered, await routeLocalnet()]).toEqual([0, 0]);
    } finally {
      await edge.close();
    }
  });

  test("a cleanup that cannot reset the sysctl keeps the rules of IPv4, the guard among them, and fails", async () => {
    await backend().start({}, state);
    await backend().stop();
    const readOnly = `mount --bind -o ro ${sysctl} ${sysctl} && exec "$@" --cleanup`;
    const command = ["unshare", "--mount", "sh", "-c", readOnly, "sh", process.execPath, main];
    const { exitCode, stderr } = await world().laboratory.tryRun("n1", command);
    expect(exitCode).not.toBe(0);
    expect(stderr).toContain("[SYSCTL_FAILED]");
    expect([await routeLocalnet(), await isReached()]).toEqual([1, false]);
    expect(await world().laboratory.run("n1", ["ip6tables-save"])).not.toContain("KPNG-");
    await backend().cleanUp();
    expect(await routeLocalnet()).toBe(0);
  });
});
