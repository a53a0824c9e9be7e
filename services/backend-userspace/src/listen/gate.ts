import { isIn } from "@kpng/model/cidr.ts";
import type { EndpointSetName, Frontend, Sender } from "@kpng/service-plan/service-plan.ts";
import type { Senders } from "./senders.ts";

/** The endpoint set for a client of a frontend, or the reason why the client is refused; see `ConnectionEnd`. */
export type Admission = EndpointSetName | "source" | "policy";

/**
 * Decides which clients of one frontend are let through, and to which endpoint set: source ranges and traffic policies.
 * `TcpListener` and `UdpListener` ask it for each new client, hence a file of its own. `ServedFrontend` creates it and
 * replaces the frontend with each plan.
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

  /** Whether the answer of {@link admit} depends on the client's address, which costs a system call. */
  get needsAddress(): boolean {
    return this.#forAll === undefined;
  }

  update(frontend: Frontend): void {
    this.#frontend = frontend;
    const { pod, node, outside } = frontend.routes;
    const sets = [pod, node, outside].map((route) => (route.kind === "balance" ? route.set : undefined));
    const isSame = frontend.sources === undefined && sets.every((set) => set === sets[0]);
    this.#forAll = isSame ? sets[0] : undefined;
  }

  /** Decides for a client. `address` is ignored unless {@link needsAddress}. */
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
