import { nodeFamilies } from "@kpng/backend-kit/node-addresses/node-families.ts";
import { type Family, families } from "@kpng/model/address.ts";
import { type Log, reasonOf } from "@kpng/process/log.ts";
import { AddressEntry } from "./address-entry.ts";
import type { Entry } from "./entry.ts";
import type { PortRange } from "./local-ports.ts";
import { MapEntry } from "./map-entry.ts";
import { OwnInterface, wildcardPorts } from "./own-interface.ts";
import { RedirectEntry } from "./redirect-entry.ts";
import { runTool } from "./run-tool.ts";
import { BackendUserspaceError } from "./userspace-error.ts";

interface EntryOptions {
  readonly entry: "auto" | "redirect" | "address" | "map";
  readonly mapAddresses: Readonly<Partial<Record<Family, string>>>;
  readonly localPorts: PortRange;
  /** Whether --entry address serves external and load-balancer IPs. */
  readonly addressExternalIPs: boolean;
  /** Name of the table and of the interface. */
  readonly name: string;
  /** Called whenever an entry has added addresses to the node, or removed them. */
  readonly forgetAddresses: () => void;
  readonly print: (line: string) => void;
  readonly log: Log;
}

/**
 * Returns an entry for each family, IPv4 first: of the kind that the option names, or else of the first kind that this
 * process has the rights for. Logs the choice and its reason. Removes what a killed run with another kind of entry left
 * on the node.
 *
 * `backend.ts` calls it at the start. Separate from the entries, because only this file knows all kinds.
 *
 * Errors: ENTRY_UNAVAILABLE if the named kind is not possible.
 */
export async function chooseEntries(options: EntryOptions): Promise<readonly Entry[]> {
  const { entry: wanted, log, mapAddresses } = options;
  const reasons: string[] = [];
  for (const kind of wanted === "auto" ? (["redirect", "address"] as const) : [wanted]) {
    if (kind === "map") break;
    try {
      const entries = await (kind === "redirect" ? openRedirect(options) : openAddress(options));
      const reason = wanted === "auto" ? ["it is possible here", ...reasons].join("; ") : "the option --entry";
      log.info("entry chosen", { entry: kind, reason });
      return entries;
    } catch (error) {
      const reason = `${kind} is not possible: ${reasonOf(error)}`;
      if (wanted !== "auto")
        throw new BackendUserspaceError("ENTRY_UNAVAILABLE", `--entry ${reason}`, { cause: error });
      reasons.push(reason);
    }
  }
  const reason = wanted === "auto" ? reasons.join("; ") : "the option --entry or --map";
  log.info("entry chosen", { entry: "map", reason, ...mapAddresses });
  return families.flatMap((family) => {
    const address = mapAddresses[family];
    const { localPorts: ports, print } = options;
    return address === undefined ? [] : [new MapEntry({ family, address, ports, print })];
  });
}

async function openRedirect({ name, localPorts, log }: EntryOptions): Promise<readonly Entry[]> {
  // Needs the rights for a transaction, and commits none.
  await runTool(["nft", "--check", "-f", "-"], `table ip ${name} {}\n`);
  await OwnInterface.delete(name).catch((error: unknown) =>
    log.error("interface of an earlier run not removed", { interface: name, reason: reasonOf(error) }),
  );
  return nodeFamilies().map((family) => new RedirectEntry({ family, table: name, ports: localPorts }));
}

async function openAddress({
  name,
  log,
  addressExternalIPs,
  forgetAddresses,
}: EntryOptions): Promise<readonly Entry[]> {
  const device = await OwnInterface.open(name, forgetAddresses);
  // A table of an earlier run would redirect packets to ports at which nothing listens.
  await removeTables(name, log);
  const { kind } = device;
  const ports = wildcardPorts();
  if (ports.length > 0) {
    log.info("programs that listen on all addresses can be reached through addresses of Services", { ports });
  }
  log.info("interface for the addresses of Services", { interface: device.name, kind });
  if (!addressExternalIPs) {
    log.info("external and load-balancer IPs are not served: --address-external-ips serves them", { entry: "address" });
  }
  return nodeFamilies().map((family) => new AddressEntry(family, device.share(), addressExternalIPs));
}

/** Removes what any kind of entry may have left on the node. `backend.ts` calls it for `--cleanup`. */
export async function removeEntries(name: string, log: Log): Promise<void> {
  await removeTables(name, log);
  await OwnInterface.delete(name);
}

async function removeTables(name: string, log: Log): Promise<void> {
  for (const family of nodeFamilies()) {
    const ip = family === "v4" ? "ip" : "ip6";
    await runTool(["nft", "-f", "-"], `table ${ip} ${name} {}\ndelete table ${ip} ${name}\n`).catch((error: unknown) =>
      log.info("no table removed", { family, reason: reasonOf(error) }),
    );
  }
}
