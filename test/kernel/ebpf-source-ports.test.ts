import { describe, expect, test } from "vitest";
import { publicAddress, web } from "../scenario/build.ts";
import { addressOf, loadBalancerIP, nodeAddress } from "../scenario/packet.ts";
import { families } from "../scenario/places.ts";
import { kpngEbpf } from "./backend/kpng-proxy.ts";
import { whyNoBpf } from "./laboratory/bpf.ts";
import { buildTwoNodes } from "./laboratory/two-nodes.ts";

const whyNot = await whyNoBpf();
const note = whyNot === undefined ? "" : ` (skipped: ${whyNot})`;

/** Sends from one port to several places, again until each has answered; prints how many have after 30 s at most. */
const client = `const places = process.argv.slice(1).map((text) => text.split(" "));
const answered = new Set();
const socket = require("node:dgram").createSocket(places[0][0].includes(":") ? "udp6" : "udp4");
const end = () => { console.log(answered.size); process.exit(); };
socket.on("message", (_text, { address, port }) => answered.add(address + port).size === places.length && end());
socket.bind(33_333, () => setInterval(() => places.forEach(([address, port]) => socket.send("?", port, address)), 200));
setTimeout(end, 30_000);`;

describe.skipIf(whyNot !== undefined)(`source ports behind kpng-ebpf${note}`, () => {
  test("one port of a client reaches an endpoint through two frontends", { timeout: 180_000 }, async () => {
    const world = await buildTwoNodes();
    const backend = await kpngEbpf(world);
    try {
      const ports = [{ port: 80, nodePort: 30_080 }];
      const state = web({ ports, loadBalancerIPs: [publicAddress(10)], external: "Local" }, ["a"]);
      await backend.start({}, state);
      for (const family of families) {
        const places = [
          `${addressOf(state, loadBalancerIP("web"), family)} 80`,
          `${addressOf(state, nodeAddress, family)} 30080`,
        ];
        const command = [process.execPath, "-e", client, ...places];
        expect((await world.laboratory.run("client", command)).trim(), `${family}\n${backend.log()}`).toBe("2");
      }
    } finally {
      await backend.close();
      await world.close();
    }
  });
});
