import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { RulesetChanges } from "./nftables-connection.ts";
import type { BatchStep } from "./transaction.ts";

const module = new URL("nftables-connection.ts", import.meta.url).href;
const script = `
  const { NftablesConnection } = await import("${module}");
  const table = { family: "v4", name: "kpng" };
  const connection = new NftablesConnection();
  for (const work of [
    connection.listObjects(table),
    connection.commit(table, [{ kind: "chain", chain: "pick_1", rules: [] }]),
  ]) await work.catch(({ message }) => console.log(message));
`;

test("without CAP_NET_ADMIN, errors of reads and transactions name the capability", () => {
  const drop = process.getuid?.() === 0 ? ["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--"] : [];
  const [program = "", ...args] = [...drop, process.execPath, "--input-type=module", "--eval", script];
  const { stdout, stderr } = spawnSync(program, args, { encoding: "utf8" });
  const lacks = "EPERM: this process lacks CAP_NET_ADMIN";
  expect(stdout.trim().split("\n"), stderr).toEqual([
    expect.stringMatching(`^\\[READ_FAILED\\] .*${lacks}$`),
    expect.stringMatching(`^\\[COMMIT_REJECTED\\] .*${lacks}$`),
  ]);
});

const elements = [{ key: "\0\0\0\0" }];
const put: BatchStep = { set: "record", kind: "put", elements };
const replacement: readonly BatchStep[] = [{ set: "record", kind: "delete", elements }, put];

test("commits of our own are no changes by others, whichever connection makes them", () => {
  const changes = new RulesetChanges();
  const before = changes.observe(7);
  changes.committed(7, replacement);
  changes.committed(8, [{ kind: "chain", chain: "pick_2", rules: [] }]);
  expect(changes.expected).toBe(9);
  expect(changes.observe(9)).toBe(before);
});

test.each([
  { what: "without a commit", after: () => undefined, now: 8 },
  { what: "before a commit that the kernel refused", after: (changes) => changes.disturbed(), now: 9 },
  { what: "after a commit", after: (changes) => changes.committed(7, replacement), now: 9 },
  {
    what: "that takes the number of a commit that changed nothing",
    after: (changes) => changes.committed(7, [put]),
    now: 8,
  },
] satisfies { what: string; after: (changes: RulesetChanges) => void; now: number }[])(
  "a change by another program $what is noticed",
  ({ after, now }) => {
    const changes = new RulesetChanges();
    const before = changes.observe(7);
    after(changes);
    expect(changes.observe(now)).not.toBe(before);
  },
);

test("no batch names a generation of more than 32 bits", () => {
  const changes = new RulesetChanges();
  changes.observe(0xffff_ffff);
  changes.committed(0xffff_ffff, replacement);
  expect(changes.expected).toBeUndefined();
});
