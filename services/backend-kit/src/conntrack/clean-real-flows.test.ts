import { execFileSync, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const program = fileURLToPath(new URL("testing/clean-real-flows.ts", import.meta.url));
const unshare = process.getuid?.() === 0 ? ["unshare", "-n"] : ["unshare", "-rn"];
const env = { ...process.env, PATH: `${process.env.PATH ?? ""}:/usr/sbin:/sbin` };

/** Reason why this machine cannot run the test; undefined if it can. */
const reason = findReason();

function findReason(): string | undefined {
  if (process.platform !== "linux") return "network namespaces need Linux";
  const [command = "", ...args] = unshare;
  const probe = "ip link set lo up && nft list ruleset && conntrack -L";
  const { status, error, stderr } = spawnSync(command, [...args, "sh", "-c", probe], { env, encoding: "utf8" });
  return status === 0 ? undefined : `${unshare.join(" ")}: ${error?.message ?? stderr.trim()}`;
}

if (reason !== undefined && process.env.CI === "true") {
  test("real flows", () => {
    throw new Error(`CI must be able to create flows in a network namespace: ${reason}`);
  });
}

test.skipIf(reason !== undefined)(
  `stale flows are deleted from the kernel and the others stay${reason === undefined ? "" : ` (skipped: ${reason})`}`,
  () => {
    const [command = "", ...args] = unshare;
    const output = execFileSync(command, [...args, process.execPath, program], { env, encoding: "utf8" });
    expect(JSON.parse(output)).toEqual({
      before: [
        "10.0.0.1 30053 -> 10.1.0.2 5353",
        "10.0.0.1 30099 -> 10.1.0.2 5353",
        "10.96.0.10 53 -> 10.1.0.1 5353",
        "10.96.0.10 53 -> 10.1.0.1 5353",
        "10.96.0.10 53 -> 10.1.0.2 5353",
        "10.96.0.10 53 -> 10.1.0.2 5353",
        "10.96.0.11 53 -> 10.1.0.1 5353",
        "10.96.0.99 53 -> 10.96.0.99 53",
        "fd00:96::10 53 -> fd00:1::2 5353",
      ],
      result: { kind: "cleaned", deletedCount: 6 },
      after: ["10.96.0.10 53 -> 10.1.0.1 5353", "10.96.0.10 53 -> 10.1.0.1 5353", "10.96.0.99 53 -> 10.96.0.99 53"],
    });
  },
);
