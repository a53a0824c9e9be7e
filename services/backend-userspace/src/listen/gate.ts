import { networkInterfaces } from "node:os";
import { parseCidr } from "@kpng/model/address.ts";
import { isIn } from "@kpng/model/cidr.ts";
import type { EndpointSetName, Frontend, NodePlan, Sender } from "@kpng/service-plan/service-plan.ts";

/** The endpoint set for a client of a frontend, or the reason why the client is refused; see `ConnectionEnd`. */
export type Admission = EndpointSetName | "source" | "policy";

/**
 * Decides which clients of one frontend are let through, and to which endpoint set: source ranges and traffic policies.
 */
export class Gate {
  readonly #senders: Senders;
  #frontend: Frontend;
  /** The set for all clients; undefined if it depends on the client. */
  #forAll: EndpointSetName | undefined;

  constructor(frontend: Frontend, senders: Senders) {
    this.#senders = senders;
    this.#frontend = frontend;
    this.update(frontend);
  }

  get frontend(): Frontend {
    return this.#frontend;
  }

  update(frontend: Frontend): void {
    this.#frontend = frontend;
    const { pod, node, outside } = frontend.routes;
    const sets = [pod, node, outside].map((route) => (route.kind === "balance" ? route.set : undefined));
    const isSame = frontend.sources === undefined && sets.every((set) => set === sets[0]);
    this.#forAll = isSame ? sets[0] : undefined;
  }

  /** Decides for a client. */
  admit(address: string): Admission {
    if (this.#forAll !== undefined) return this.#forAll;
    const { sources, routes } = this.#frontend;
    // A link-local address has a zone, which no range has.
    const bare = address.replace(/%.*/, "");
    if (sources !== undefined) {
      const { ranges, ownAddresses } = sources;
      if (!ownAddresses.includes(bare) && !ranges.some((range) => isIn(bare, range))) return "source";
    }
    const route = routes[this.#senders.senderOf(bare)];
    return route.kind === "balance" ? route.set : "policy";
  }
}

/** Treatment of new clients of a frontend as a whole. */
export type Verdict = "serve" | "refuse" | "drop";

/** Returns "serve" if any client has an endpoint. */
export function verdictOf({ routes }: Frontend): Verdict {
  const kinds = (["pod", "node", "outside"] satisfies Sender[]).map((sender) => routes[sender].kind);
  if (kinds.includes("balance")) return "serve";
  return kinds.includes("refuse") ? "refuse" : "drop";
}

/**
 * Recognizes the kind of sender by its source address, which is all that a process knows of a connection.
 * All frontends of a family share one.
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
