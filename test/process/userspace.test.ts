import { createSocket } from "node:dgram";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect, test } from "vitest";
import { listen } from "../cluster/ports.ts";
import { kpngMain, usePrograms } from "./programs.ts";
import { serviceList } from "./service-list.ts";

// kpng-userspace as a user without any rights starts it: as root without capabilities, or as the user of the tests.
const { at, start } = usePrograms();

const withoutRights = process.getuid?.() === 0 ? ["setpriv", "--bounding-set", "-all", "--inh-caps", "-all"] : [];

/** Starts `kpng file to-local to-userspace` on a state. */
function serve(state: unknown, ...args: readonly string[]): Program {
  writeFileSync(at("state.json"), JSON.stringify(state));
  const sink = ["to-local", "to-userspace", "--node-name", "n1", "--state-dir", "none", ...args];
  return start(kpngMain, ["file", "-i", at("state.json"), ...sink], {}, withoutRights);
}

test("without any rights, Services answer at local ports, whose mapping is printed", { timeout: 60_000 }, async () => {
  await using server = createServer((socket) => socket.end("tcp"));
  const target = await listen(server);
  const datagrams = createSocket("udp4", (_data, from) => datagrams.send("udp", from.port, from.address));
  datagrams.bind(target, "127.0.0.1");
  const program = serve(serviceList({ target, protocols: ["TCP", "UDP"] }), "--map", "127.0.0.1");
  const portOf = (protocol: string): number =>
    Number(new RegExp(` ${protocol} \\S+ -> 127\\.0\\.0\\.1:(\\d+)\\n`).exec(program.stdout())?.[1]);
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
  const program = serve(serviceList({ target: 1 }));
  expect(await program.ended, program.stderr()).toBe(1);
  expect(program.stderr()).toMatch(/ENTRY_UNAVAILABLE.*packets cannot be redirected: .*--map 127\.0\.0\.1/);
});
