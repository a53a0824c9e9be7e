import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NodeView } from "@kpng/model/node-view.ts";
import { endpoint, port, service, view } from "@kpng/model/testing/views.ts";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type LoadedView, loadView, viewPath, writeViewFile } from "./view-file.ts";

const hour = 3_600_000;
const header = { nodeName: "n1", serviceProxyName: "", currentAtMs: 100 * hour, bootId: "boot-1" };
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-state-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

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

interface Wanted {
  readonly nodeName?: string;
  readonly serviceProxyName?: string;
  readonly nowMs?: number;
  readonly bootId?: string;
}

function load(wanted: Wanted = {}): Promise<LoadedView> {
  const standard = { nodeName: "n1", serviceProxyName: "", nowMs: 101 * hour, bootId: "boot-1" };
  return loadView({ folder, ...standard, ...wanted });
}

/** Returns a view in which absent and undefined fields are equal. */
function plain({ nodeName, node, services }: NodeView): unknown {
  return JSON.parse(JSON.stringify({ nodeName, node, services: [...services] }));
}

test("a loaded view has every field of the saved view", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  const loaded = await load();
  if (loaded.kind !== "view") throw new Error(JSON.stringify(loaded));
  expect(plain(loaded.update.view)).toEqual(plain(world));
  expect(loaded).toMatchObject({ isAfterReboot: false, currentAtMs: 100 * hour, update: { isFromDisk: true } });
  expect(readdirSync(folder)).toEqual(["view"]);
});

test("after a reboot the endpoints of this node are left out", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  const loaded = await load({ bootId: "boot-2" });
  if (loaded.kind !== "view") throw new Error(JSON.stringify(loaded));
  expect(loaded.isAfterReboot).toBe(true);
  expect(loaded.update.view.services.get("a/web")?.endpoints.map(({ key }) => key)).toEqual(["10.1.0.2"]);
});

test.each<{ readonly name: string; readonly wanted: Wanted; readonly reason: string }>([
  { name: "of another node", wanted: { nodeName: "n2" }, reason: "for node n1" },
  { name: "that is too old", wanted: { nowMs: 125 * hour }, reason: "1500 minutes old" },
])("a view $name is refused", async ({ wanted, reason }) => {
  await writeViewFile(join(folder, "view"), header, world);
  expect(await load(wanted)).toEqual({ kind: "refused", reason: expect.stringContaining(reason) });
});

test("the view of another service-proxy-name is in another file", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  expect(await load({ serviceProxyName: "other" })).toEqual({ kind: "none" });
});

test("a clock that was set back does not make a view too old", async () => {
  await writeViewFile(join(folder, "view"), header, world);
  expect(await load({ nowMs: 1 })).toMatchObject({ kind: "view" });
});

test("a file that is truncated or changed anywhere is refused, and nothing throws", async () => {
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
    expect(await load(), `${bytes.length} bytes`).toEqual({
      kind: "refused",
      reason: expect.stringContaining("[STATE_FILE]"),
    });
  }
});

test("a failed write leaves the old file and nothing else", async () => {
  const path = join(folder, "view");
  await writeViewFile(path, header, world);
  const failing = { ...world, services: new Map([["a/x", { ...service("a/x"), endpoints: null }]]) };
  await expect(writeViewFile(path, header, failing as unknown as NodeView)).rejects.toThrow();
  expect(readdirSync(folder)).toEqual(["view"]);
  expect(await load()).toMatchObject({ kind: "view" });
});

test("a planted link or FIFO at the draft is replaced, and a FIFO at the file is not waited for", async () => {
  const path = viewPath(folder, "");
  writeFileSync(join(folder, "victim"), "untouched");
  for (const plant of ["ln -s victim", "mkfifo"]) {
    execFileSync("sh", ["-c", `${plant} "$0.tmp"`, path], { cwd: folder });
    await writeViewFile(path, header, world);
    expect(await load()).toMatchObject({ kind: "view" });
  }
  expect(readFileSync(join(folder, "victim"), "utf8")).toBe("untouched");
  execFileSync("sh", ["-c", `rm "$0" && mkfifo "$0"`, path]);
  expect(await load()).toEqual({ kind: "refused", reason: expect.stringContaining("[STATE_FILE]") });
});
