import { isIn } from "@kpng/model/cidr.ts";
import { type ObjectKind, parseServer, type ServerId, serverOfReal } from "../render/kernel-objects.ts";

/**
 * Virtual servers of other programs that stay, although a Service has their address and port, because the address is in
 * `--ipvs-exclude-cidrs`. Pure.
 *
 * `IpvsRuleSet` creates one whenever it reads the kernel, and leaves out changes that concern these servers. Separate
 * from it, because no other part knows this option.
 */
export class ForeignServers {
  readonly #excludedCIDRs: readonly string[];
  readonly #servers = new Set<ServerId>();
  readonly #elements = new Set<string>();

  constructor(excludedCIDRs: readonly string[]) {
    this.#excludedCIDRs = excludedCIDRs;
  }

  /** Returns whether a virtual server that is not ours stays, and notes it if it does. */
  keeps(server: ServerId): boolean {
    const parts = parseServer(server);
    if (parts?.kind !== "address" || !this.#excludedCIDRs.some((cidr) => isIn(parts.address, cidr))) return false;
    this.#servers.add(server);
    this.#elements.add(parts.element);
    return true;
  }

  /** True for the virtual server, its real servers, and the element that would record it as ours. */
  concerns(kind: ObjectKind, key: string): boolean {
    if (kind === "server") return this.#servers.has(key);
    if (kind === "real") return this.#servers.has(serverOfReal(key));
    return kind === "SERVERS" && this.#elements.has(key);
  }
}
