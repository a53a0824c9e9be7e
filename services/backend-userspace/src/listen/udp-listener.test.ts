import { spawn } from "node:child_process";
import { createSocket, type Socket } from "node:dgram";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { EndpointAddress } from "@kpng/service-plan/service-plan.ts";
import { expect, onTestFinished, test } from "vitest";
import { until } from "../../../../test/cluster/until.ts";
import type { TrafficSettings } from "../rules/userspace-runtime.ts";
import { key, RunningService, type ServiceOptions } from "../testing/running-service.ts";

/** A UDP endpoint that answers with its name and the datagram. */
async function udpEndpoint(name: string): Promise<{ readonly at: EndpointAddress; readonly socket: Socket }> {
  const socket = await client();
  socket.on("message", (data, from) => socket.send(`${name}:${String(data)}`, from.port, from.address));
  return { socket, at: { address: "127.0.0.1", port: socket.address().port } };
}

async function client(address = "127.0.0.1"): Promise<Socket> {
  const socket = createSocket("udp4");
  socket.bind(0, address);
  await once(socket, "listening");
  onTestFinished(() => socket[Symbol.asyncDispose]());
  return socket;
}

/** Sends a datagram every 20 ms until an answer that satisfies the test comes, and returns it. */
async function ask(socket: Socket, port: number, isRight = (_answer: string) => true, text = "x"): Promise<string> {
  let answer: string | undefined;
  const onMessage = (data: Buffer): void => {
    if (isRight(String(data))) answer = String(data);
  };
  socket.on("message", onMessage);
  const timer = setInterval(() => socket.send(text, port, "127.0.0.1"), 20);
  socket.send(text, port, "127.0.0.1");
  await until("an answer", () => answer !== undefined).finally(() => clearInterval(timer));
  socket.off("message", onMessage);
  return answer ?? "";
}

/** Sends one datagram, and waits for the answer. */
async function exchange(socket: Socket, port: number): Promise<void> {
  socket.send("x", port, "127.0.0.1");
  await once(socket, "message");
}

const open = (options: ServiceOptions, given: Partial<TrafficSettings> = {}) =>
  RunningService.open({ protocol: "UDP", ...options }, given);

test("datagrams of one client go to one endpoint, and those of another client to the next", async () => {
  const [one, two] = [await udpEndpoint("one"), await udpEndpoint("two")];
  await using service = await open({ endpoints: [one.at, two.at] });
  const [first, second] = [await client(), await client()];
  const name = await ask(first, service.port);
  expect(await ask(first, service.port)).toBe(name);
  expect(await ask(second, service.port)).not.toBe(name);
  expect(service.runtime.udp.limit.open).toBe(2);
});

test("a flow moves when its endpoint is removed", async () => {
  const [one, two] = [await udpEndpoint("one"), await udpEndpoint("two")];
  await using service = await open({ endpoints: [one.at] });
  const socket = await client();
  expect(await ask(socket, service.port)).toBe("one:x");
  await service.apply({ protocol: "UDP", endpoints: [two.at] });
  expect(await ask(socket, service.port, (answer) => answer.startsWith("two"))).toBe("two:x");
  expect(service.runtime.udp.limit.open).toBe(1);
});

test("a client with affinity gets another endpoint when its own refuses a datagram", async () => {
  const [one, two] = [await udpEndpoint("one"), await udpEndpoint("two")];
  one.socket.close();
  await using service = await open({ endpoints: [one.at, two.at], affinitySeconds: 600 });
  const socket = await client();
  expect(await ask(socket, service.port)).toBe("two:x");
  expect(service.ends()["endpoint-reset"]).toBe(1);
});

test("flows beyond a client's share end its own flows that are idle longest, and no flow of another client", async () => {
  const one = await udpEndpoint("one");
  await using service = await open({ endpoints: [one.at] });
  service.runtime.udp.limit.limits = { total: 100, perService: 20 };
  const other = await client("127.0.0.2");
  await exchange(other, service.port);
  const flood = await Promise.all(Array.from({ length: 50 }, () => client()));
  for (const each of flood) {
    await exchange(each, service.port);
    // The first of them is never idle for long.
    if (flood[0] !== undefined) await exchange(flood[0], service.port);
  }
  expect(service.ends()).toEqual({ limit: 40 });
  expect(service.runtime.udp.limit.open).toBe(11);
  await exchange(other, service.port);
  expect(service.runtime.table.of(key).total).toBe(51);
});

test("an idle flow ends, and one that was in use for some time does so later", async () => {
  const one = await udpEndpoint("one");
  await using service = await open(
    { endpoints: [one.at] },
    {
      udp: { idleMs: 200, streamIdleMs: 60_000, streamAfterMs: 100 },
    },
  );
  const [lookup, stream, later] = [await client(), await client(), await client()];
  await exchange(lookup, service.port);
  const timer = setInterval(() => stream.send("x", service.port, "127.0.0.1"), 20);
  await until("the flow of the lookup has ended", () => service.ends().closed === 1);
  clearInterval(timer);
  await exchange(later, service.port);
  await until("a flow that began later has ended", () => service.ends().closed === 2);
  expect(service.runtime.table.of(key).open).toBe(1);
});

test("datagrams of a client outside the source ranges are ignored", async () => {
  const one = await udpEndpoint("one");
  const sources = { ranges: ["192.0.2.0/24"], ownAddresses: [] };
  await using service = await open({ endpoints: [one.at], sources });
  const socket = await client();
  socket.send("x", service.port, "127.0.0.1");
  await until("it was counted", () => service.ends().source === 1);
  expect(service.runtime.udp.limit.open).toBe(0);
});

test("an endpoint that no socket can be connected to is followed by the next one", async () => {
  const one = await udpEndpoint("one");
  // The kernel refuses to connect a socket to the broadcast address.
  await using service = await open({ endpoints: [{ address: "255.255.255.255", port: 9 }, one.at] });
  const socket = await client();
  expect(await ask(socket, service.port)).toBe("one:x");
  expect(service.ends()).toEqual({ "endpoint-reset": 1 });
});

test("an endpoint at which this process listens itself is left out, and counted if there is no other", async () => {
  const one = await udpEndpoint("one");
  await using service = await open({ endpoints: [one.at] });
  const own = { address: "127.0.0.1", port: service.port };
  await service.apply({ protocol: "UDP", endpoints: [own] });
  const socket = await client();
  socket.send("x", service.port, "127.0.0.1");
  await until("it was counted", () => service.ends().loop === 1);
  expect(service.runtime.udp.limit.open).toBe(0);
  await service.apply({ protocol: "UDP", endpoints: [own, one.at] });
  expect(await ask(socket, service.port)).toBe("one:x");
});

test("a flood that uses up all descriptors ends neither the process nor running flows", {
  timeout: 60_000,
}, async () => {
  const one = await udpEndpoint("one");
  const driver = fileURLToPath(new URL("../testing/serve-udp.ts", import.meta.url));
  const command = ["-c", 'ulimit -n 100; exec "$0" "$@"', process.execPath, driver, String(one.at.port)];
  const child = spawn("sh", command, { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "close");
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (data: string) => (text += data));
  await until("the port", () => text.includes("\n") || child.exitCode !== null);
  const port = Number(text);
  const socket = await client();
  expect(await ask(socket, port)).toBe("one:x");
  const flood = await Promise.all(Array.from({ length: 200 }, () => client()));
  // All of them are sent before the question, because the driver prints its counters soon after the answer.
  await Promise.all(flood.map((each) => new Promise((resolve) => each.send("x", port, "127.0.0.1", resolve))));
  // An answer to an earlier datagram would say nothing about the flood.
  expect(await ask(socket, port, (answer) => answer === "one:y", "y")).toBe("one:y");
  child.stdin.end();
  expect(await ended).toEqual([0, null]);
  const { limit } = JSON.parse(text.split("\n")[1] ?? "");
  expect(limit).toBeGreaterThan(50);
});
