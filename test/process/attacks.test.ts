import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { availableParallelism, loadavg } from "node:os";
import { setTimeout as delay } from "node:timers/promises";
import { create, toBinary } from "@bufbuild/protobuf";
import { WatchEndpointsRequestSchema } from "@kpng/model/gen/kpng/inspect/v1/inspect_pb.ts";
import { beforeEach, expect, test } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import {
  connectionStart,
  encodeFrame,
  encodeMessage,
  encodeRequestHeaders,
  flagEndHeaders,
  flagEndStream,
  frameType,
} from "../scale/http2-frames.ts";
import { mebibytes, quantile, usageOf } from "../scale/proc.ts";
import { writeState } from "./attacks/attacked-watcher.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// Clients that try to exhaust the memory or the files of a watcher with a heap limit of 512 MB.
const programs = usePrograms();

/**
 * Maximum growth of the RSS of the watcher 30 s after an attack, in bytes: 10 to 18 MiB were seen, of 130 at the peak.
 */
const leftoverBytes = 32 * 1024 * 1024;

let sockets: Socket[] = [];
let port = 0;
let healthPort = 0;

beforeEach(() => () => {
  for (const socket of sockets) socket.destroy();
  sockets = [];
});

async function startWatcher(args: readonly string[] = []) {
  [port = 0, healthPort = 0] = await freePorts(2);
  const path = programs.at("state.yaml");
  writeState(path);
  const options = ["--listen", `tcp://127.0.0.1:${port}`, "--healthz-bind-address", `127.0.0.1:${healthPort}`];
  const program = programs.start(kpngMain, ["file", "-i", path, "to-api", ...options, ...args], {
    NODE_OPTIONS: "--max-old-space-size=512",
  });
  await program.said('"msg":"listening"');
  await expect.poll(() => healthMs("/readyz"), { timeout: 30_000 }).toBeLessThan(10_000);
  return program;
}

/** Returns the time until a health probe is answered with status 200, in milliseconds; infinity for another answer. */
async function healthMs(path = "/livez"): Promise<number> {
  const startMs = performance.now();
  try {
    const { status } = await fetch(`http://127.0.0.1:${healthPort}${path}`, { headers: { connection: "close" } });
    return status === 200 ? performance.now() - startMs : Number.POSITIVE_INFINITY;
  } catch {
    return Number.POSITIVE_INFINITY;
  }
}

/** Returns the number of refusals of a limit. */
async function refused(reason: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${healthPort}/metrics`)).text();
  const line = text.split("\n").find((one) => one.startsWith(`kpng_refused_total{reason="${reason}"}`));
  return Number(line?.split(" ").at(-1));
}

async function dial(): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  sockets.push(socket);
  await once(socket, "connect");
  return socket;
}

/** Returns the RSS of an idle watcher, in bytes, once it stays the same: it returns the memory of its start later. */
async function settledBytes(pid: number): Promise<number> {
  const samples: number[] = [];
  const recent = 15_000 / sampleMs;
  const range = (): number => {
    samples.push(usageOf(pid).rssBytes);
    const last = samples.slice(-recent);
    return last.length < recent ? Number.POSITIVE_INFINITY : Math.max(...last) - Math.min(...last);
  };
  await expect.poll(range, { timeout: 90_000, interval: sampleMs }).toBeLessThan(4 * 1024 * 1024);
  return usageOf(pid).rssBytes;
}

const sampleMs = 500;

/** Probes the watcher during an attack, and afterwards until it has returned its memory. */
async function survive(pid: number, attack: () => Promise<void>, holdMs: number): Promise<void> {
  const before = await settledBytes(pid);
  const probes: number[] = [];
  let peak = before;
  let isOver = false;
  const probing = (async () => {
    while (!isOver) {
      probes.push(await healthMs());
      peak = Math.max(peak, usageOf(pid).rssBytes);
      await delay(20);
    }
  })();
  await attack();
  await delay(holdMs);
  isOver = true;
  await probing;
  for (const socket of sockets) socket.destroy();
  const p99 = quantile(probes, 0.99);
  process.stdout.write(
    `${probes.length} probes, p99 ${p99.toFixed(0)} ms, RSS ${mebibytes(before)}, peak ${mebibytes(peak)}\n`,
  );
  const endedMs = performance.now();
  const timeout = 30_000 * slowness();
  await expect.poll(() => usageOf(pid).rssBytes - before, { timeout, interval: sampleMs }).toBeLessThan(leftoverBytes);
  const tookMs = performance.now() - endedMs;
  process.stdout.write(`RSS afterwards ${mebibytes(usageOf(pid).rssBytes)}, after ${tookMs.toFixed(0)} ms\n`);
  expect(p99).toBeLessThan(500 * slowness());
}

/** How much longer everything takes because other processes want the cores, too: 1 on a quiet machine. */
function slowness(): number {
  return Math.max(1, (loadavg()[0] ?? 0) / availableParallelism());
}

test("1 000 WatchEndpoints on each of three connections that do not read end neither the watcher nor its probes", {
  timeout: 400_000,
}, async () => {
  const program = await startWatcher();
  const noWindow = Buffer.concat([
    connectionStart.subarray(0, 24),
    encodeFrame(frameType.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0, 0])),
  ]);
  const headers = encodeRequestHeaders("/kpng.inspect.v1.InspectService/WatchEndpoints", "kpng", "http");
  const request = toBinary(WatchEndpointsRequestSchema, create(WatchEndpointsRequestSchema));
  await survive(
    program.pid,
    async () => {
      for (let index = 0; index < 3; index += 1) {
        const socket = await dial();
        socket.resume();
        socket.write(noWindow);
        for (let call = 0; call < 1_000; call += 1) {
          const id = 2 * call + 1;
          const message = encodeMessage(id, request);
          message[4] = flagEndStream;
          socket.write(Buffer.concat([encodeFrame(frameType.headers, flagEndHeaders, id, headers), message]));
        }
      }
    },
    5_000,
  );
  const counts = await Promise.all(["connection-queries", "queries"].map((reason) => refused(reason)));
  // 100 calls of a connection get as far as the limits of queries, and at most 32 of them are admitted.
  expect(counts.reduce((all, one) => all + one)).toBeGreaterThanOrEqual(3 * (100 - 32));
  expect(program.stderr()).toContain("query refused");
});

test("20 000 pipelined requests on one HTTP/1.1 connection are answered one after the other", {
  timeout: 400_000,
}, async () => {
  const program = await startWatcher();
  const body = "{}";
  const request =
    "POST /kpng.inspect.v1.InspectService/ListServices HTTP/1.1\r\nhost: localhost\r\n" +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
  await survive(
    program.pid,
    async () => {
      const socket = await dial();
      socket.pause();
      socket.write(request.repeat(20_000));
    },
    5_000,
  );
});

test("more connections than the limit are closed, and health answers", { timeout: 400_000 }, async () => {
  const program = await startWatcher(["--max-connections", "50"]);
  await survive(program.pid, async () => void (await Promise.all(Array.from({ length: 500 }, dial))), 500);
  expect(await refused("connections")).toBeGreaterThanOrEqual(450);
  expect(program.stderr().match(/connection refused/g)?.length).toBe(1);
});
