import { execFile, spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";

const program = fileURLToPath(new URL("testing/count-real-traffic.ts", import.meta.url));
const unshare = process.getuid?.() === 0 ? ["unshare", "-n"] : ["unshare", "-rn"];
const env = { ...process.env, PATH: `${process.env.PATH ?? ""}:/usr/sbin:/sbin` };

/** Reason why this machine cannot run the test; undefined if it can. */
const reason = findReason();

function findReason(): string | undefined {
  if (process.platform !== "linux") return "network namespaces need Linux";
  const [command = "", ...args] = unshare;
  const probe =
    "ip link set lo up && nft list ruleset && conntrack -L && echo 1 > /proc/sys/net/netfilter/nf_conntrack_acct";
  const { status, error, stderr } = spawnSync(command, [...args, "sh", "-c", probe], { env, encoding: "utf8" });
  return status === 0 ? undefined : `${unshare.join(" ")}: ${error?.message ?? stderr.trim()}`;
}

test.skipIf(reason !== undefined && process.env.CI !== "true")(
  `connections, packets and bytes of real traffic are counted${reason === undefined ? "" : ` (skipped: ${reason})`}`,
  { timeout: 120_000 },
  async () => {
    const [command = "", ...args] = unshare;
    const { stdout } = await promisify(execFile)(command, [...args, process.execPath, program], { env });
    expect(JSON.parse(stdout)).toEqual({ hasAll: true, hasNoOther: true, hasBytes: true, hasPackets: true });
  },
);
