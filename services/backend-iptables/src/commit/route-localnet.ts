import { GuardedSysctl } from "@kpng/backend-kit/sysctl/guarded-sysctl.ts";
import { routeLocalnet, type Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { BackendIptablesError } from "../read/iptables-error.ts";
import { localnetMarker } from "../render/render-fixed-chains.ts";

/** Passes the output of iptables-save for IPv4 to `take`, in pieces cut anywhere. */
type ReadRules = (take: (text: string) => void) => Promise<void>;

interface RouteLocalnetOptions {
  /** Whether node ports on localhost are served. */
  readonly isWanted: boolean;
  readonly read: ReadRules;
  /** Whether the sysctl must not be changed: for `--diff` and `--dry-run`. */
  readonly isReadOnly: boolean;
  readonly sysctls: Sysctls;
  readonly log: Log;
}

const stays = "route_localnet stays set; keeping the rules that guard 127.0.0.1";

/**
 * Returns the object that sets and resets the sysctl `route_localnet` of this node. `openRuleSets` calls it once, for
 * IPv4.
 *
 * Node ports on 127.0.0.1 need the sysctl. Without the guard, a rule in filter INPUT, it opens every service bound to
 * 127.0.0.1 to the node's neighbours (CVE-2020-8558). The returned object therefore sets the sysctl only after the
 * guard is committed.
 *
 * Separate from `GuardedSysctl` of backend-kit, which works for any such sysctl: this file adds what is special to
 * `route_localnet` and to the rules of this package.
 */
export function openRouteLocalnet(options: RouteLocalnetOptions): Promise<GuardedSysctl> {
  return GuardedSysctl.open({
    ...options,
    name: routeLocalnet,
    isRecorded: () => hasMarker(options.read),
    onNotSet: "node ports on 127.0.0.1 will not work",
    onNotReset: stays,
  });
}

/** Whether the installed rules say that an earlier run of kpng set the sysctl. */
async function hasMarker(read: ReadRules): Promise<boolean> {
  let isFound = false;
  let rest = "";
  const take = (text: string): void => {
    const all = rest + text;
    isFound ||= all.includes(localnetMarker);
    rest = all.slice(-localnetMarker.length);
  };
  await read(take).catch((error: unknown) => {
    // The sync reports it, and retries until the table can be read. The marker is most likely in the other table.
    if (!(error instanceof BackendIptablesError && error.code === "TABLE_INCOMPATIBLE")) throw error;
  });
  return isFound;
}

/**
 * Resets the sysctl before `removeRules` removes the chains with prefix `prefix`, the guard among them. Returns whether
 * the guard may be removed.
 *
 * The sysctl stays as it is if kpng did not set it, or if another kpng instance or kube-proxy still guards 127.0.0.1 on
 * this node. If it cannot be reset, the guard must stay.
 *
 * `saved` is the output of iptables-save for IPv4, of all variants together.
 */
export async function resetBeforeCleanup(saved: string, prefix: string, sysctls: Sysctls, log: Log): Promise<boolean> {
  const lines = saved.split("\n");
  const guards = lines.filter((line) => line.includes(localnetMarker));
  const isOurs = guards.some((line) => line.startsWith(`-A ${prefix}`));
  const isGuardedByOthers =
    guards.some((line) => !line.startsWith(`-A ${prefix}`)) ||
    (saved.includes(":KUBE-NODEPORTS") &&
      lines.some(
        (line) => line.startsWith("-A KUBE-FIREWALL") && line.includes("block incoming localnet connections"),
      ));
  if (!isOurs || isGuardedByOthers || (await sysctls.read(routeLocalnet)) === 0) return true;
  try {
    await sysctls.ensure(routeLocalnet, 0);
    log.info("route_localnet reset to 0, as before kpng set it");
    return true;
  } catch (error) {
    log.error(stays, { reason: reasonOf(error) });
    return false;
  }
}
