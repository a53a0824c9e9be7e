import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { NodeView } from "@kpng/model/node-view.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { beforeEach, expect, test } from "vitest";
import { loadView, writeViewFile } from "./view-file.ts";

const header = { nodeName: "n1", savedAt: "2026-01-31T12:00:00.000Z", bootId: "boot-1" };
let folder = "";
beforeEach(() => {
  folder = temporaryFolder();
});

const world = view(
  [
    service("a/web", {
      ips: ["10.96.0.10", "fd00::10"],
      externalIPs: ["192.0.2.1"],
      loadBalancerIPs: ["192.0.2.2"],
      type: "LoadBalancer",
      ports: [port(80, { name: "http", nodePort: 30_080 }), port(53, { protocol: "UDP", targetPort: "dns" })],
      ipFilters: [{ sourceRanges: ["10.0.0.0/8"] }],
      clientIPAffinitySeconds: 10_800,
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 31_000,
      portHasEndpoints: [
        { v4: true, v6: false },
        { v4: false, v6: false },
      ],
      endpoints: [
        endpoint("10.1.0.1", { isOnNode: true, ports: [{ name: "http", port: 8080, protocol: "TCP" }] }),
        endpoint("10.1.0.2", { conditions: { ready: false, serving: true, terminating: true } }),
      ],
    }),
    service("b/empty"),
  ],
  { addresses: ["10.0.0.1"], podCIDRs: ["10.1.0.0/24"], serviceCIDRs: ["10.96.0.0/16"], zone: "z" },
);

interface Desired {
  readonly nodeName?: string;
  readonly serviceProxyName?: string;
  readonly bootId?: string;
}

function load({ bootId = "boot-1", ...desired }: Desired = {}) {
  return loadView({ folder, nodeName: "n1", serviceProxyName: "", ...desired }, bootId);
}

/** Returns a view in which absent and undefined fields are equal. */
function plain({ nodeName, node, services }: NodeView): unknown {
  return JSON.parse(JSON.stringify({ nodeName, node, services: [...services] }));
}

test("a loaded view has every field of the saved view", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  const loaded = await load();
  expect(loaded && plain(loaded.update.view)).toEqual(plain(world));
  expect(loaded).toMatchObject({
    header: { savedAt: header.savedAt },
    update: { isFromDisk: true, isAfterReboot: false },
  });
  expect(readdirSync(folder)).toEqual(["view"]);
});

test("a view of another node is refused", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  await expect(load({ nodeName: "n2" })).rejects.toThrow("[STATE_FILE]");
});

test("the view of another service-proxy-name is in another file", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  expect(await load({ serviceProxyName: "other" })).toBeUndefined();
});

test("a file that is truncated or changed anywhere is refused", async () => {
  const path = join(folder, "view");
  await writeViewFile(path, header, world);
  const whole = readFileSync(path);
  const bad: Buffer[] = [Buffer.alloc(0), Buffer.from("x"), Buffer.concat([whole, Buffer.from([0])])];
  for (let at = 0; at < whole.length; at += 7) {
    bad.push(whole.subarray(0, at));
    const changed = Buffer.from(whole);
    changed.writeUInt8((whole[at] ?? 0) ^ 0x10, at);
    bad.push(changed);
  }
  for (const bytes of bad) {
    writeFileSync(path, bytes);
    await expect(load(), `${bytes.length} bytes`).rejects.toThrow("[STATE_FILE]");
  }
});

test("a failed write leaves the old file and nothing else", async () => {
  const path = join(folder, "view");
  await writeViewFile(path, header, world);
  const failing = { ...world, services: new Map([["a/x", { ...service("a/x"), endpoints: null }]]) };
  await expect(writeViewFile(path, header, failing as unknown as NodeView)).rejects.toThrow();
  expect(readdirSync(folder)).toEqual(["view"]);
  expect(await load()).toBeDefined();
});
