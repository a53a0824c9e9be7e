import { renameSync, writeFileSync } from "node:fs";
import type { Program } from "@kpng/backend-kit/testing/program.ts";
import { expect, test, vi } from "vitest";
import { freePorts } from "../cluster/ports.ts";
import { kpngMain, usePrograms } from "./programs.ts";

// Each command is a process, on a machine that may be busy.
vi.setConfig({ testTimeout: 120_000 });

const { at, start } = usePrograms();

/** Writes manifests of so many Services. */
function write(count: number): void {
  const services = Array.from({ length: count }, (_, index) => {
    const spec = `{type: ClusterIP, clusterIP: 10.96.0.${index + 1}, ports: [{port: 80}]}`;
    return `apiVersion: v1\nkind: Service\nmetadata: {namespace: default, name: s${index}}\nspec: ${spec}\n`;
  });
  writeFileSync(at("next.yaml"), `---\n${services.join("---\n")}`);
  renameSync(at("next.yaml"), at("services.yaml"));
}

test("an operator releases held deletions over the unix socket, and over nothing else", async () => {
  write(20);
  const [port = 0] = await freePorts(1);
  const [socket, tcp] = [`unix://${at("api.sock")}`, `127.0.0.1:${port}`];
  const listen = ["--listen", socket, "--listen", `tcp://${tcp}`];
  const watcher = start(kpngMain, ["file", "-i", at("services.yaml"), "--brake-hold", "1h", "to-api", ...listen]);
  await watcher.said('"msg":"listening"');
  const kpng = (api: string, ...args: string[]): Program => start(kpngMain, [...args, "--api", api]);
  const output = async (...args: string[]): Promise<string> => {
    const program = kpng(socket, ...args);
    expect(await program.ended, program.stderr()).toBe(0);
    return program.stdout();
  };
  await expect.poll(() => output("get", "services", "--no-headers"), { timeout: 30_000 }).toMatch(/(default.*\n){20}/);
  write(1);
  await watcher.said('"msg":"deletions held back');
  expect(await output("top", "--count", "1")).toMatch(/^held {7}deletion of 19 of 20 services, until .*kpng release/m);
  const listed = kpng(tcp, "get", "services");
  expect(await listed.ended).toBe(0);
  expect(listed.stderr()).toMatch(
    /^warning: the newest list of the source lacks 19 of 20 services; .*kpng release\)$/m,
  );
  const refused = kpng(tcp, "release");
  expect(await refused.ended).not.toBe(0);
  expect(refused.stderr()).toContain("only a client of a unix socket may release deletions");
  expect(await output("get", "services", "--no-headers")).toMatch(/(default.*\n){20}/);
  expect(await output("release")).toBe("deleted 19 objects\n");
  expect(await output("get", "services", "--no-headers")).toMatch(/^default +s0 .*\n$/);
  expect(await output("release")).toBe("deleted 0 objects\n");
  expect(await output("top", "--count", "1")).not.toContain("held");
});
