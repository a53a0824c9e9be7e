import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { createLog } from "@kpng/process/log.ts";
import { temporaryFolder } from "@kpng/process/testing/temporary-folder.ts";
import { useScripts } from "@kpng/process/testing/use-scripts.ts";
import { expect, test } from "vitest";
import { removeRules } from "./remove-rules.ts";

const ourRules = "*nat\n:PREROUTING ACCEPT [0:0]\n:KPNG-SERVICES - [0:0]\n-A PREROUTING -j KPNG-SERVICES\nCOMMIT";

/** Puts programs of iptables-legacy, the default, and of iptables-nft before those of the machine. */
function useTools(nftSave: string): () => string {
  const scripts: Record<string, string> = {};
  for (const name of ["iptables", "ip6tables"]) {
    scripts[name] = scripts[`${name}-legacy`] = `echo "${name} v1.8.9 (legacy)"`;
    scripts[`${name}-nft`] = `echo "${name} v1.8.9 (nf_tables)"`;
    scripts[`${name}-save`] = scripts[`${name}-legacy-save`] = `cat << 'E'\n${ourRules}\nE`;
    scripts[`${name}-restore`] = scripts[`${name}-legacy-restore`] = `cat >> $(dirname "$0")/restored`;
    scripts[`${name}-nft-save`] = nftSave;
  }
  const folder = useScripts(scripts);
  return () => readFileSync(join(folder, "restored"), "utf8");
}

const remove = () =>
  removeRules({
    prefix: "KPNG-",
    sysctls: new Sysctls(temporaryFolder()),
    log: createLog("error", () => undefined),
  });

test("a cleanup succeeds where the kernel lacks a variant whose programs are installed", async () => {
  const restored = useTools("echo 'Could not fetch rule set generation id: Invalid argument' >&2; exit 4");
  await remove();
  expect(restored()).toContain("-X KPNG-SERVICES");
});

test("a cleanup fails where the rules of a variant cannot be read, after the others are removed", async () => {
  const restored = useTools("echo 'Permission denied' >&2; exit 4");
  await expect(remove()).rejects.toMatchObject({ code: "SAVE_FAILED" });
  expect(restored()).toContain("-X KPNG-SERVICES");
});
