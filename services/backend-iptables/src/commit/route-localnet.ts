import { routeLocalnet, type Sysctls } from "@kpng/backend-kit/sysctl/sysctls.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { localnetMarker } from "../render/render-fixed-chains.ts";
import type { LocalnetGuard } from "../render/render-options.ts";

/** Reads what iptables-save prints for IPv4, in pieces cut anywhere. */
export type ReadRules = (take: (text: string) => void) => Promise<void>;

/**
 * The sysctl `route_localnet` of this node, and the guard that must be in force before it is set.
 *
 * Node ports on 127.0.0.1 need the sysctl; without the guard in filter INPUT it opens every service bound to 127.0.0.1
 * to the node's neighbours (CVE-2020-8558). So the sysctl is set after the guard is committed and reset before the guard
 * is removed. Whether kpng set it is recorded where it is lost together with the sysctl, at a reboot: in the comment of
 * the guard's rule.
 */
export class RouteLocalnet {
  /** What rules must be rendered with. */
  readonly guard: LocalnetGuard;
  readonly #sysctls: Sysctls;
  readonly #log: Log;
  #isDone: boolean;

  private constructor(guard: LocalnetGuard, isWanted: boolean, sysctls: Sysctls, log: Log) {
    this.guard = guard;
    this.#sysctls = sysctls;
    this.#log = log;
    this.#isDone = !isWanted;
  }

  /**
   * Finds out which guard the node needs. If node ports on localhost are no longer wanted but kpng set the sysctl
   * earlier, it is reset first; where that fails, the guard stays.
   */
  static async open(isWanted: boolean, read: ReadRules, sysctls: Sysctls, log: Log): Promise<RouteLocalnet> {
    const guard = await currentGuard(read, sysctls);
    if (isWanted) return new RouteLocalnet(guard, true, sysctls, log);
    if (guard === "others" || (await sysctls.read(routeLocalnet)) === 0)
      return new RouteLocalnet("none", false, sysctls, log);
    try {
      await sysctls.ensure(routeLocalnet, 0);
      return new RouteLocalnet("none", false, sysctls, log);
    } catch (error) {
      log.error("route_localnet stays set; keeping the rules that guard 127.0.0.1", { reason: reasonOf(error) });
      return new RouteLocalnet("ours", false, sysctls, log);
    }
  }

  /** The same for a run that prints or compares rules: it changes nothing on the node. */
  static async readOnly(isWanted: boolean, read: ReadRules, sysctls: Sysctls, log: Log): Promise<RouteLocalnet> {
    return new RouteLocalnet(isWanted ? await currentGuard(read, sysctls) : "none", false, sysctls, log);
  }

  /** Sets the sysctl if node ports on localhost want it. Call it when the guard is in force. Never rejects. */
  async afterCommit(): Promise<void> {
    if (this.#isDone) return;
    this.#isDone = true;
    await this.#sysctls.ensure(routeLocalnet, 1).catch((error: unknown) => {
      this.#log.error("node ports on 127.0.0.1 will not work", { reason: reasonOf(error) });
    });
  }
}

/**
 * Returns the guard that rules must have while node ports on localhost are served: "ours" if the sysctl is not set, or
 * was set by kpng, "others" if another program set it before kpng.
 */
async function currentGuard(read: ReadRules, sysctls: Sysctls): Promise<"ours" | "others"> {
  if (((await sysctls.read(routeLocalnet)) ?? 0) === 0) return "ours";
  let isOurs = false;
  let rest = "";
  await read((text) => {
    const all = rest + text;
    isOurs ||= all.includes(localnetMarker);
    rest = all.slice(-localnetMarker.length);
  });
  return isOurs ? "ours" : "others";
}

/**
 * Resets the sysctl before `--cleanup` removes the guard with chain prefix `prefix`. Returns whether the guard may go.
 *
 * It is left alone if another program set it, or if another kpng instance or kube-proxy still guards 127.0.0.1 on this
 * node. If it cannot be reset, the guard must stay.
 *
 * `saved` is what iptables-save prints for IPv4, all variants together.
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
    log.error("route_localnet stays set; keeping the rules that guard 127.0.0.1", { reason: reasonOf(error) });
    return false;
  }
}
