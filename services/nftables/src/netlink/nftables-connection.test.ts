import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";

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
