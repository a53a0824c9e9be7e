import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { web } from "../scenario/build.ts";
import { addressOf, clusterIP } from "../scenario/packet.ts";
import { families } from "../scenario/places.ts";
import { type KpngEbpf, kpngEbpf } from "./backend/kpng-ebpf.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { buildTwoNodes, type TwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;
const wait = { timeout: 60_000, interval: 200 };

/** Prints who answers, and each error of its connected socket, after which it connects again. */
const client = `const [family, address] = process.argv.slice(1);
function open() {
  const socket = require("node:dgram").createSocket(family);
  let timer;
  socket.on("message", (text) => console.log(JSON.parse(String(text)).name));
  socket.on("error", ({ code }) => { console.log(code); clearInterval(timer); socket.close(); setTimeout(open, 50); });
  socket.on("connect", () => { timer = setInterval(() => socket.send("who?", () => undefined), 50); });
  socket.connect(80, address);
}
open();`;

describe.skipIf(whyNot !== undefined)(`sockets that kpng-ebpf ends${note}`, () => {
  let world: TwoNodes;
  let backend: KpngEbpf;

  beforeAll(async () => {
    world = await buildTwoNodes();
    backend = await kpngEbpf(world, { args: ["--sockets", "all"] });
  });
  afterAll(async () => {
    await backend?.close();
    await world?.close();
  });

  test.each(families)(
    "a connected UDP socket whose endpoint has gone gets an error, and reaches another one (%s)",
    { timeout: 180_000 },
    async (family) => {
      const before = web({}, ["b", "c"]);
      await backend.start({}, before);
      const said: string[] = [];
      const script = 'echo 0 >"$0/cgroup.procs" && exec "$@"';
      const words = [family === "v4" ? "udp4" : "udp6", addressOf(before, clusterIP("web"), family)];
      const command = ["sh", "-c", script, backend.cgroup, process.execPath, "-e", client, ...words];
      const child = world.laboratory.start("a", command);
      for (const stream of [child.stdout, child.stderr]) {
        stream?.on("data", (text) => said.push(...String(text).split("\n").filter(Boolean)));
      }
      await expect.poll(() => said.length, wait).toBeGreaterThan(0);
      const [first = ""] = said;
      const other = first === "b" ? "c" : "b";
      expect(["b", "c"]).toContain(first);
      // A change that keeps the endpoint leaves the socket alone.
      await backend.apply(web({}, ["b", "c", "d"]));
      await backend.apply(web({}, [other]));
      await expect.poll(() => said.at(-1), { ...wait, message: backend.log() }).toBe(other);
      const changes = said.filter((line, at) => line !== said[at - 1]);
      expect(changes).toEqual([first, expect.stringMatching(/^ECONN(ABORTED|REFUSED)$/), other]);
      child.kill();
    },
  );
});
