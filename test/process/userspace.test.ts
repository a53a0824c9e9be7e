import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { oneService } from "./one-service.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// kpng-userspace as a user without any rights starts it: as root without capabilities, or as the user of the tests.
const { at } = usePrograms();

const withoutRights = process.getuid?.() === 0 ? ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] : [];

/** Starts `kpng file to-local to-userspace` on a state, and collects what it prints. */
function serve(state: unknown, args: readonly string[]) {
  writeFileSync(at("state.json"), JSON.stringify(state));
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
    ended,
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
  await using program = serve(oneService(target.port, ["TCP", "UDP"]), ["--map", "127.0.0.1"]);
  const portOf = (protocol: string): number =>
    Number(new RegExp(` ${protocol} \\S+ -> 127\\.0\\.0\\.1:(\\d+)\\n`).exec(program.text.out)?.[1]);
  await expect.poll(() => portOf("TCP") > 0 && portOf("UDP") > 0, { timeout: 30_000 }).toBe(true);
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

test("without the rights for redirection the program ends, with the reason and the way that needs none", async () => {
  await using program = serve(oneService(1), []);
  const [status] = await program.ended;
  expect(status, program.text.log).toBe(1);
  expect(program.text.log).toMatch(/ENTRY_UNAVAILABLE.*packets cannot be redirected: .*--map 127\.0\.0\.1/);
});
