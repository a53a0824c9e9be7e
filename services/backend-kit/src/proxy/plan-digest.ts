import { hash } from "node:crypto";
import type { ServiceKey } from "@kpng/model/service.ts";
import type { ServicePlan } from "@kpng/service-plan/service-plan.ts";

/**
 * A digest of the plans of all Services of one family, updated Service by Service. Equal plans have the same digest, in
 * every run of the program; the order of the updates does not matter. After a restart, an equal digest shows that the
 * installed rules are those of the saved view.
 *
 * *Bound:* 8 bytes for each Service, in about 100 bytes of memory. *Cost:* a put takes 10 µs for 20 endpoints.
 */
export class PlanDigest {
  readonly #byService = new Map<ServiceKey, bigint>();
  #digest = 0n;

  /** Replaces the plan of a Service; undefined for a deleted Service. */
  put(key: ServiceKey, plan: ServicePlan | undefined): void {
    this.#digest ^= this.#byService.get(key) ?? 0n;
    if (plan === undefined) {
      this.#byService.delete(key);
      return;
    }
    const digest = hash("sha1", JSON.stringify(plan), "buffer").readBigUInt64BE();
    this.#byService.set(key, digest);
    this.#digest ^= digest;
  }

  clear(): void {
    this.#byService.clear();
    this.#digest = 0n;
  }

  /** *Shape:* 16 hexadecimal digits. */
  get text(): string {
    return this.#digest.toString(16).padStart(16, "0");
  }
}
