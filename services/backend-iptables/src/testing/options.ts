import type { NodePlan } from "@kpng/service-plan/service-plan.ts";
import { nodePlan } from "@kpng/service-plan/testing/node-plans.ts";
import { chainNames } from "../render/chain-names.ts";
import type { RenderOptions } from "../render/render-options.ts";

/**
 * Makes the options of the renderers from only the fields that a test is about; `node` contains fields of the node's
 * plan. Tests of `diff/` and `render/` call it, also through `rulesOf`.
 */
export function renderOptions({ node, ...parts }: OptionParts = {}): RenderOptions {
  return {
    node: nodePlan(node),
    names: chainNames("KPNG-"),
    masqueradeMark: 0x4000,
    localnetGuard: node?.family === "v6" ? "none" : "others",
    isConntrackLiberal: false,
    ...parts,
  };
}

/** The fields of options that a test sets. */
export type OptionParts = Partial<Omit<RenderOptions, "node">> & { readonly node?: Partial<NodePlan> | undefined };
