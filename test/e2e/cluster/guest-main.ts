import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Laboratory } from "@kpng/laboratory/laboratory.ts";
import { reasonOf } from "@kpng/process/log.ts";
import type { GuestAnswer, GuestCall, GuestCluster } from "./guest-nodes.ts";
import { addGuestBridge } from "./network.ts";
import { makeNodes } from "./node.ts";

// The nodes of a cluster whose control plane is outside of this guest. Argument: the folder that guest and machine
// share.

const [shared = ""] = process.argv.slice(2);
const inShared = (...names: readonly string[]): string => join(shared, ...names);

const { folder, ...cluster } = JSON.parse(readFileSync(inShared("nodes.json"), "utf8")) as GuestCluster;
const laboratory = await Laboratory.open();
await addGuestBridge(laboratory, cluster.addresses);
const nodes = await makeNodes({ ...cluster, laboratory }, folder);
writeFileSync(inShared("ready"), "");

while (!existsSync(inShared("stop"))) {
  for (const name of readdirSync(inShared("calls"))) {
    const file = inShared("calls", name);
    const call = JSON.parse(readFileSync(file, "utf8")) as GuestCall;
    rmSync(file);
    void answer(name, call);
  }
  await sleep(20);
}
await laboratory.close();

async function answer(name: string, call: GuestCall): Promise<void> {
  const text = JSON.stringify(await carryOut(call));
  // What the machine reads must be complete.
  writeFileSync(inShared(name), text);
  renameSync(inShared(name), inShared("answers", name));
}

async function carryOut({ node: name, method, command = [] }: GuestCall): Promise<GuestAnswer> {
  const node = nodes.find((each) => each.name === name);
  if (node === undefined) return { error: `no node ${name}` };
  try {
    return { result: method === "run" ? await node.run(command) : await node[method]() };
  } catch (error) {
    return { error: reasonOf(error) };
  }
}
