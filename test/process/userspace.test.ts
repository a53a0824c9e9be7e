import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { oneService, type Protocol } from "./one-service.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// kpng-userspace as a user without any rights starts it: as root without capabilities, or as the user of the tests.
const { at } = usePrograms();

const withoutRights = process.getuid?.() === 0 ? ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] : [];

/** Starts `kpng file to-local to-userspace` on a state with one endpoint, and collects what it prints. */
function startUserspace(target: AddressInfo, protocols: readonly Protocol[], args: readonly string[] = []) {
  writeFileSync(at("state.json"), JSON.stringify(oneService(target.port, { protocols })));
  const source = [resolve(kpngMain), "file", "-i", at("state.json")];
  const sink = ["to-local", "to-userspace", "--node-name", "n1", "--state-dir", "none", ...args];
  const [program = "", ...rest] = [...withoutRights, process.execPath, ...source, ...sink];
  const child = spawn(program, rest, { stdio: ["ignore", "pipe", "pipe"] });
  const text = { out: "", log: "" };
  child.stdout.setEncoding("utf8").on("data", (data: string) => {
    text.out += data;
  });
  child.stderr.setEncoding("utf8").on("data", (data: string) => {
    text.log += data;
  });
  const ended = once(child, "close");
  return {
    text,
    /** Waits until something holds; fails when the program ends. */
    until: async (what: string, holds: () => boolean | Promise<boolean>): Promise<void> => {
      while (!(await holds())) {
        if (child.exitCode !== null) throw new Error(`the program ended before ${what}:\n${text.out}${text.log}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    [Symbol.asyncDispose]: async () => {
      child.kill();
      await ended;
    },
  };
}

test("without any rights, Services answer at local ports, whose mapping is printed", { timeout: 60_000 }, async () => {
  await using server = createServer((socket) => socket.end("tcp")).listen(0, "127.0.0.1");
  await once(server, "listening");
  const target = server.address() as AddressInfo;
  const datagrams = createSocket("udp4", (_data, from) => datagrams.send("udp", from.port, from.address));
  datagrams.bind(target.port, "127.0.0.1");
  await using program = startUserspace(target, ["TCP", "UDP"]);
  const portOf = (protocol: string): number =>
    Number(new RegExp(` ${protocol} \\S+ -> 127\\.0\\.0\\.1:(\\d+)\\n`).exec(program.text.out)?.[1]);
  await program.until("the mapping", () => portOf("TCP") > 0 && portOf("UDP") > 0);
  expect(program.text.log).toMatch(/"entry":"map","reason":"redirect is not possible: .*address is not possible: /);
  const client = connect(portOf("TCP"), "127.0.0.1");
  const [answer] = await once(client, "data");
  expect(String(answer)).toBe("tcp");
  const udp = createSocket("udp4");
  const timer = setInterval(() => udp.send("x", portOf("UDP"), "127.0.0.1"), 100);
  const [said] = await once(udp, "message");
  clearInterval(timer);
  expect(String(said)).toBe("udp");
  for (const socket of [udp, datagrams]) socket.close();
});

test("/healthz fails while nothing listens, and succeeds when the port is free", { timeout: 60_000 }, async () => {
  await using server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const taken = server.address() as AddressInfo;
  const free = createServer().listen(0, "127.0.0.1");
  await once(free, "listening");
  const health = `127.0.0.1:${(free.address() as AddressInfo).port}`;
  free.close();
  await once(free, "close");
  const ports = ["--local-ports", `${taken.port}-${taken.port}`, "--map", "127.0.0.1", "--error-delay", "50ms"];
  await using program = startUserspace(taken, ["TCP"], [...ports, "--healthz-bind-address", health]);
  const seen = new Set<number>();
  const status = async (): Promise<number> => {
    const found = await fetch(`http://${health}/healthz`).then(
      (got) => got.status,
      () => 0,
    );
    seen.add(found);
    return found;
  };
  await program.until("the failed sync", () => program.text.log.includes("NOTHING_LISTENS"));
  expect(program.text.log).toContain("EADDRINUSE");
  await program.until("health", async () => (await status()) === 503);
  expect(seen).not.toContain(200);
  server.close();
  await program.until("the sync", async () => (await status()) === 200);
  expect(program.text.out).toContain(`default/web:tcp TCP 10.96.0.1:80 -> 127.0.0.1:${taken.port}`);
});
