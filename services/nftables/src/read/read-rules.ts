import type { TableId } from "../netlink/element-batch.ts";
import type { TableConnection } from "../netlink/table-connection.ts";
import { rangesPattern } from "../render/service-chains.ts";
import type { RulesByChain } from "./compare-rules.ts";

/**
 * Reads the rules of each chain, and with them the contents of the sets of source ranges, so that a changed range
 * counts as a changed rule of the chain with the same name. `NftTable` compares what it has installed with what it
 * reads later.
 *
 * Errors: READ_FAILED.
 */
export async function readRules(connection: TableConnection, id: TableId): Promise<RulesByChain> {
  const rules = new Map(await connection.readChains(id));
  const withSets = [...rules].filter(([chain, texts]) => rangesPattern.test(chain) && texts.join("").includes(chain));
  for (const [chain, texts] of withSets) {
    const elements = [...(await connection.readElements(id, chain)).keys()];
    rules.set(chain, [...texts, Buffer.from(elements.sort().join(" "), "latin1").toString("hex")]);
  }
  return rules;
}
