import { networkInterfaces } from "node:os";
import { parseCidr } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { NodePlan, Sender } from "@kpng/service-plan/service-plan.ts";

/**
 * Recognizes the kind of sender by its source address, which is all that a process knows of a connection.
 *
 * `UserspaceRuleSet` has one for its family and updates it with each plan; `Gate` asks it. Separate from `Gate`,
 * because all frontends of the family share it.
 *
 * Where the plan recognizes pods by an interface, a sender in a subnet of such an interface counts as a pod.
 */
export class Senders {
  #podCIDRs: readonly string[] = [];
  #localAddresses: ReadonlySet<string> = new Set();

  update(node: NodePlan, localAddresses: Iterable<string>): void {
    this.#podCIDRs = podCIDRs(node);
    this.#localAddresses = new Set(localAddresses);
  }

  senderOf(address: string): Sender {
    if (this.#podCIDRs.some((cidr) => isIn(address, cidr))) return "pod";
    return this.#localAddresses.has(address) ? "node" : "outside";
  }
}

function podCIDRs({ podTraffic, family }: NodePlan): readonly string[] {
  if (podTraffic === undefined) return [];
  if (podTraffic.kind === "source") return [podTraffic.cidr];
  const isOfPods = (name: string): boolean =>
    podTraffic.kind === "interface" ? name === podTraffic.name : name.startsWith(podTraffic.prefix);
  const wanted = family === "v4" ? "IPv4" : "IPv6";
  return Object.entries(networkInterfaces())
    .filter(([name]) => isOfPods(name))
    .flatMap(([, addresses = []]) => addresses)
    .flatMap(({ family: found, cidr }) => (found === wanted && cidr !== null ? [parseCidr(cidr)?.cidr ?? cidr] : []));
}
