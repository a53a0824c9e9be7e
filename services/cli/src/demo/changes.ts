import { podA, podB } from "@kpng/laboratory/one-node.ts";
import { readManifest, replaceManifest, withoutEndpoint } from "./manifests.ts";
import { elapsed, firstAnswer, isFrom, type Observation, observe } from "./observe.ts";
import type { Client } from "./packets.ts";
import type { Print } from "./print.ts";

/** The Service's address of each family, and the slice with its endpoints. */
export const families = [
  { external: "198.51.100.10", moved: "198.51.100.20", slice: "endpointslice-ipv4.yaml", podKey: "v4" },
  { external: "2001:db8:100::10", moved: "2001:db8:100::20", slice: "endpointslice-ipv6.yaml", podKey: "v6" },
] as const;

/** Takes one pod out of the EndpointSlices and shows the last packet that still went to it. */
export async function removePod(client: Client, print: Print, manifests: string): Promise<void> {
  print.step("change", `${podA.name} goes away: its address leaves the EndpointSlice`);
  for (const { external, slice, podKey } of families) {
    const text = withoutEndpoint(await readManifest(slice), podA[podKey]);
    const changedAtMs = await replaceManifest(manifests, slice, text);
    const lastToGone = (await observe(client, external, isLeftTo16)).findLast(({ reply }) => isFrom(reply, podA));
    const isAfter = lastToGone !== undefined && lastToGone.sentAtMs > changedAtMs;
    const when = isAfter ? `the last one ${elapsed(changedAtMs, lastToGone)} after` : "none after";
    print.result(`${external}: packets to ${podA.name}: ${when} the file's change, from then on all to ${podB.name}`);
  }
}

/** Each packet goes to either pod with the same chance: 16 in a row to one of two by accident is 1 in 65 536. */
function isLeftTo16(observations: readonly Observation[]): boolean {
  const last = observations.slice(-16);
  return last.length === 16 && last.every(({ reply }) => isFrom(reply, podB));
}

/** Puts one pod in the place of the other, so that the first packet that sees the change is known for certain. */
export async function swapPods(client: Client, print: Print, manifests: string): Promise<void> {
  print.step("change", `${podA.name} comes back, ${podB.name} goes away`);
  for (const { external, slice, podKey } of families) {
    const text = withoutEndpoint(await readManifest(slice), podB[podKey]);
    const changedAtMs = await replaceManifest(manifests, slice, text);
    const first = await firstAnswer(client, external, [podA]);
    print.result(`${external}: first packet to ${podA.name} ${elapsed(changedAtMs, first)} after the file's change`);
  }
}

/** Gives the Service other addresses: the new ones answer, the old ones do not. */
export async function moveAddresses(client: Client, print: Print, manifests: string): Promise<void> {
  print.step("change", "the Service gets other external IPs");
  let service = await readManifest("service.yaml");
  for (const { external, moved } of families) service = service.replace(external, moved);
  const changedAtMs = await replaceManifest(manifests, "service.yaml", service);
  // Both at once, or the time of the second family would include the wait for the first one.
  const firsts = await Promise.all(families.map(({ moved }) => firstAnswer(client, moved, [podA])));
  for (const [index, { external, moved }] of families.entries()) {
    const old = await client.ask({ protocol: "tcp", address: external, port: 80, timeoutMs: 300 });
    if (old.kind === "answer") throw new Error(`${external} is still answered, by ${old.name}`);
    const first = firsts[index];
    const when = first === undefined ? "" : elapsed(changedAtMs, first);
    print.result(`${moved}: first packet answered ${when} after the file's change; ${external} is silent`);
  }
}
