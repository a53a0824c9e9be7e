import type { ProxySettings } from "@kpng/service-plan/plan-node.ts";
import type { ChainNames } from "./chain-names.ts";

/** The administrator's settings, for both families. */
export interface Settings extends ProxySettings {
  readonly names: ChainNames;
  /** 0 to 31. */
  readonly masqueradeBit: number;
}
