import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { NftablesConnection } from "../../../services/nftables/src/netlink/nftables-connection.ts";
import { monotonicMs } from "../monotonic.ts";

/**
 * Runs in the network namespace of a node: `node-probe.ts [ADDRESS PORT]`. Prints a line of JSON for each change of the
 * beacon, and a summary when standard input ends.
 *
 * The *beacon* is the only Service with client affinity. Therefore the map `sticky_endpoints` has the address of its
 * endpoint alone, and reading it costs the kernel nothing, however many Services there are. The benchmark counts in
 * the address.
 *
 * After a line of input, it opens connections to a Service at ADDRESS, which does not change, and sends on one that
 * stays open. The endpoint of this Service is this process.
 */
const [address = "", portText = ""] = process.argv.slice(2);
const serverAddress = { host: "10.255.0.1", port: 8080 };
const table = { family: "v4", name: "kpng" } as const;
const nft = new NftablesConnection();
const traffic = { connections: 0, failed: 0, slowestMs: 0, sent: 0, lost: 0 };
let isOver = false;

async function readBeacon(): Promise<number | undefined> {
  const found: number[] = [];
  try {
    for (const value of (await nft.readElements(table, "sticky_endpoints")).values()) {
      const [, high = 0, middle = 0, low = 0] = Buffer.from(value, "latin1");
      found.push(high * 65_536 + middle * 256 + low);
    }
  } catch {
    // There is no table yet.
    return undefined;
  }
  return found.length === 0 ? undefined : Math.max(...found);
}

async function watchBeacon(): Promise<void> {
  let last: number | undefined;
  while (!isOver) {
    const beacon = await readBeacon();
    if (beacon !== undefined && beacon !== last) {
      last = beacon;
      process.stdout.write(`${JSON.stringify({ beacon, atMs: monotonicMs() })}\n`);
    }
    await sleep(1);
  }
}

/** Opens a connection, waits for the answer to one byte, and closes it. Returns whether there was an answer. */
async function connectOnce(): Promise<boolean> {
  const startMs = performance.now();
  traffic.connections += 1;
  const isAnswered = await new Promise<boolean>((resolve) => {
    const socket = connect({ host: address, port: Number(portText) }, () => socket.write("?"));
    socket.setTimeout(5_000, () => {
      reportFlow(socket.localPort ?? 0);
      socket.destroy();
    });
    socket.once("data", () => {
      resolve(true);
      socket.resetAndDestroy();
    });
    socket.on("error", () => undefined).once("close", () => resolve(false));
  });
  if (!isAnswered) traffic.failed += 1;
  traffic.slowestMs = Math.max(traffic.slowestMs, performance.now() - startMs);
  return isAnswered;
}

/** Prints what the kernel knows of a connection that got no answer. A lookup that found nothing would be refused. */
function reportFlow(port: number): void {
  const { stdout, stderr } = spawnSync("conntrack", ["-L", "-p", "tcp", "--orig-port-src", String(port)]);
  process.stderr.write(`no answer within 5 s at port ${port}: ${stdout}${stderr}\n`);
}

async function keepConnecting(): Promise<void> {
  while (!isOver) {
    void connectOnce();
    await sleep(5);
  }
}

/** Sends a byte every 5 ms on one connection; `lost` bytes are not answered at the end. */
async function keepSending(): Promise<void> {
  const socket: Socket = connect({ host: address, port: Number(portText) });
  socket.setNoDelay(true).on("error", () => undefined);
  let answered = 0;
  socket.on("data", ({ length }) => {
    answered += length;
  });
  while (!isOver) {
    socket.write("!");
    traffic.sent += 1;
    await sleep(5);
  }
  for (let waits = 0; waits < 100 && answered < traffic.sent; waits++) await sleep(20);
  traffic.lost = traffic.sent - answered;
  socket.destroy();
}

const server = createServer((socket) => socket.on("error", () => undefined).pipe(socket));
if (address !== "") await new Promise<void>((resolve) => server.listen(serverAddress, resolve));
const input = createInterface({ input: process.stdin }).on("close", () => {
  isOver = true;
});
const traffics = once(input, "line").then(async () => {
  // The elements of the first load are there before the rules. Conntrack would remember a connection that is opened in
  // between, untranslated, and a later one from the same port would get no answer.
  while (!isOver && (await nft.readChains(table).catch(() => undefined))?.get("nat_output") === undefined)
    await sleep(20);
  await Promise.all([keepConnecting(), keepSending()]);
});
await watchBeacon();
if (address !== "") await traffics;
process.stdout.write(`${JSON.stringify(traffic)}\n`, () => process.exit());
