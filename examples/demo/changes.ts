import type { AgentClient } from "@kpng/laboratory/agent/agent-client.ts";
import { podA, podB } from "@kpng/laboratory/one-node.ts";
import { elapsed, firstAnswer, isFrom, type Observation, observe } from "./observe.ts";
import type { Print } from "./print.ts";
import { readManifest, replaceManifest, withoutEndpoint } from "./processes.ts";

/**
 * For each address family, the Service's address in the demo, the one that it moves to, and the EndpointSlice with its
 * endpoints.
 *
 * The functions below are the steps of the demo that change manifests, and measure when packets follow the change. They
 * are separate, because only they measure times.
 */
export const families = [
  { external: "198.51.100.10", moved: "198.51.100.20", slice: "endpointslice-ipv4.yaml", podKey: "v4" },
  { external: "2001:db8:100::10", moved: "2001:db8:100::20", slice: "endpointslice-ipv6.yaml", podKey: "v6" },
] as const;

/** Removes one pod from the EndpointSlices and shows the last packet that it got. */
export async function removePod(client: AgentClient, print: Print, manifests: string): Promise<void> {
  print.step("change", `${podA.name} is removed from the EndpointSlice`);
  for (const { external, slice, podKey } of families) {
    const text = withoutEndpoint(await readManifest(slice), podA[podKey]);
    const changedAtMs = await replaceManifest(manifests, slice, text);
    const last = (await observe(client, external, areLast16FromB)).findLast(({ answer }) => isFrom(answer, podA));
    const isAfter = last !== undefined && last.sentAtMs > changedAtMs;
    const when = isAfter ? `last packet to ${podA.name} ${elapsed(changedAtMs, last)}` : `no packet to ${podA.name}`;
    print.result(`${external}: ${when} after the file changed, then all to ${podB.name}`);
  }
}

/**
 * True if pod B answered the last 16 packets. Each packet goes to either pod with the same probability, so 16 in a row
 * to one of two happen once in 65 536 times.
 */
function areLast16FromB(observations: readonly Observation[]): boolean {
  const last = observations.slice(-16);
  return last.length === 16 && last.every(({ answer }) => isFrom(answer, podB));
}

/** Replaces one pod by the other, so that the first answer of the new one shows when the change took effect. */
export async function swapPods(client: AgentClient, print: Print, manifests: string): Promise<void> {
  print.step("change", `${podA.name} replaces ${podB.name} in the EndpointSlice`);
  for (const { external, slice, podKey } of families) {
    const text = withoutEndpoint(await readManifest(slice), podB[podKey]);
    const changedAtMs = await replaceManifest(manifests, slice, text);
    const first = await firstAnswer(client, external, [podA]);
    print.result(`${external}: first packet to ${podA.name} ${elapsed(changedAtMs, first)} after the file changed`);
  }
}

/** Gives the Service new addresses, and shows that they answer and the old ones no longer do. */
export async function moveAddresses(client: AgentClient, print: Print, manifests: string): Promise<void> {
  print.step("change", "the Service gets new external IPs");
  let service = await readManifest("service.yaml");
  for (const { external, moved } of families) service = service.replace(external, moved);
  const changedAtMs = await replaceManifest(manifests, "service.yaml", service);
  // Both families at once: the second measurement would otherwise include the first wait.
  const firsts = await Promise.all(families.map(({ moved }) => firstAnswer(client, moved, [podA])));
  for (const [index, { external, moved }] of families.entries()) {
    const old = await client.askOnce({ protocol: "tcp", address: external, port: 80, timeoutMs: 300 });
    if (old.kind === "answer") throw new Error(`${external} still answers, from ${old.name}`);
    const first = firsts[index];
    const when = first === undefined ? "" : elapsed(changedAtMs, first);
    print.result(`${moved}: first packet answered ${when} after the file changed; ${external} no longer answers`);
  }
}
