import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createConntrackTool } from "./conntrack-tool.ts";
import type { UdpFlow } from "./udp-flow.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "kpng-conntrack-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const never = new AbortController().signal;
const line = "udp 17 29 src=1.1.1.1 dst=10.96.0.10 sport=1 dport=53 src=10.1.0.9 dst=1.1.1.1 sport=5353 dport=1 use=1";
const flow = { family: "v4", destination: "10.96.0.10", destinationPort: 53, replySource: "10.1.0.9" } as const;
const groups: readonly UdpFlow[] = [5353, 5354].map((replySourcePort) => ({ ...flow, replySourcePort }));

/** A program `conntrack` that records its arguments and then runs the script. */
function play(script: string): { readonly program: string; calls(): string } {
  const program = join(folder, "conntrack");
  writeFileSync(program, `#!/bin/sh\necho "$@" >> ${folder}/calls\n${script}\n`);
  chmodSync(program, 0o755);
  return { program, calls: () => readFileSync(join(folder, "calls"), "utf8") };
}

const deletion = (port: number): string =>
  `-D -f ipv4 -p udp -d 10.96.0.10 --dport 53 -r 10.1.0.9 --reply-port-src ${port}\n`;

test("all deletions are one process, and the deleted flows that it prints are counted", async () => {
  const { program, calls } = play(`cat > ${folder}/stdin; echo "${line}"; echo "${line}"`);
  expect(await createConntrackTool(program).deleteUdp(groups, never)).toBe(2);
  expect(calls()).toBe("-R -\n");
  expect(readFileSync(join(folder, "stdin"), "utf8")).toBe(deletion(5353) + deletion(5354));
});

test("a tool without -R is called for each deletion, and may find nothing to delete", async () => {
  const { program, calls } = play(
    `case "$*" in -R*) echo unknown >&2; exit 2;; *5353) echo "${line}";; *) exit 1;; esac`,
  );
  expect(await createConntrackTool(program).deleteUdp(groups, never)).toBe(1);
  expect(calls()).toBe(`-R -\n${deletion(5353)}${deletion(5354)}`);
});

test("a deletion that fails or takes too long is not repeated flow by flow", async () => {
  const { program, calls } = play("echo 'Operation failed: not permitted' >&2; exit 1");
  await expect(createConntrackTool(program).deleteUdp(groups, never)).rejects.toThrow(/^\[CONNTRACK_FAILED\]/);
  expect(calls()).toBe("-R -\n");
});

test("a tool without -R is asked for it once", async () => {
  const { program, calls } = play(`case "$*" in -R*) exit 2;; esac`);
  const tool = createConntrackTool(program);
  for (let at = 0; at < 2; at++) await tool.deleteUdp(groups.slice(0, 1), never);
  expect(calls()).toBe(`-R -\n${deletion(5353)}${deletion(5353)}`);
});

test("without flows to delete no process is started", async () => {
  expect(await createConntrackTool("/none").deleteUdp([], never)).toBe(0);
});

test("a dump is read line by line, skipping other lines, also if the last line has no end", async () => {
  const { program, calls } = play(`printf 'tcp 6 x\\n${line}\\n\\nnonsense\\n${line}'`);
  const flows: UdpFlow[] = [];
  await createConntrackTool(program).visitUdp("v6", (found) => flows.push(found), never);
  expect(flows).toEqual([groups[0], groups[0]]);
  expect(calls()).toBe("-L -p udp -f ipv6\n");
});

test("a missing tool and a failing tool have different error codes", async () => {
  const visit = (program: string) => createConntrackTool(program).visitUdp("v4", () => undefined, never);
  await expect(visit("/none/conntrack")).rejects.toThrow(/^\[CONNTRACK_MISSING\]/);
  const { program } = play("echo 'Operation failed: not permitted' >&2; exit 1");
  await expect(visit(program)).rejects.toThrow(/^\[CONNTRACK_FAILED\] .* -L failed \(exit 1\): Operation failed/);
});
