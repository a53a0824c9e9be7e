import { Laboratory, openLaboratory } from "@kpng/laboratory/laboratory.ts";
import { afterAll, beforeAll } from "vitest";
import { describeWhere } from "../cluster/describe-where.ts";
import { type IptablesVariant, whyNoLegacy } from "./laboratory/legacy-tools.ts";

/** Reason why no packets can be sent here, in network namespaces; undefined if they can. */
export const whyNoPackets = await findReason();

async function findReason(): Promise<string | undefined> {
  const opened = await openLaboratory();
  if (opened.kind === "unavailable") return opened.reason;
  await opened.laboratory.close();
  return undefined;
}

/** Describes tests that send packets in network namespaces; see {@link describeWhere}. */
export function describePackets(name: string, body: () => void): void {
  describeWhere(name, whyNoPackets, body);
}

/** Describes tests once with iptables-nft and once with iptables-legacy; see {@link describeWhere}. */
export function describeVariants(name: string, body: (variant: IptablesVariant) => void): void {
  for (const variant of ["nft", "legacy"] as const) {
    const reason = whyNoPackets ?? (variant === "legacy" ? whyNoLegacy() : undefined);
    describeWhere(`${name}, iptables-${variant}`, reason, () => body(variant));
  }
}

/**
 * Registers hooks that open a laboratory with these nodes, and close it after the last test. Returns a function that
 * returns it.
 */
export function useLaboratory(...nodes: readonly string[]): () => Laboratory {
  let laboratory: Laboratory;
  beforeAll(async () => {
    laboratory = await Laboratory.open();
    for (const node of nodes) await laboratory.add(node);
  });
  afterAll(() => laboratory?.close());
  return () => laboratory;
}
