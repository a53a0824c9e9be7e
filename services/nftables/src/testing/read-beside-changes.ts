import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { NftTable } from "../commit/nft-table.ts";
import { NftablesConnection } from "../netlink/nftables-connection.ts";
import { ChangingPlan } from "./plans.ts";

// Loads a table in the network namespace of this process, and reads all of it several times while another process
// changes its own table without a pause: `read-beside-changes.ts SERVICES READS`. Prints how many elements each read
// found to be wrong, and how many changes the other process made.

const other = { family: "v4", name: "other" } as const;

if (process.argv[2] === "change") await changeForEver();
else await readAll(Number(process.argv[2]), Number(process.argv[3]));

async function readAll(services: number, reads: number): Promise<void> {
  const connection = new NftablesConnection();
  const options = { family: "v4", table: "kpng", masqueradeBit: 14, maxClients: 1_000 } as const;
  const make = () => new NftTable({ ...options, connection });
  const plan = new ChangingPlan("v4");
  for (let at = 0; at < services; at++) plan.set(`ns/web-${at}`, 5);
  const stages = { committing: () => undefined };
  await make().sync(plan, "all", stages);
  // The kernel lists the chains of all tables together, here in several datagrams.
  const chains = Array.from({ length: 3_000 }, (_, at) => `add chain ip other chain-${at}\n`);
  const input = `add table ip other\nadd set ip other busy { type mark; }\n${chains.join("")}`;
  const { status, stderr } = spawnSync("nft", ["-f", "-"], { input, encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  const changing = spawn(process.execPath, [fileURLToPath(import.meta.url), "change"], { stdio: ["pipe", "pipe", 2] });
  let said = "";
  changing.stdout?.on("data", (data) => (said += String(data)));
  await once(changing.stdout ?? changing, "data");
  const wrong: number[] = [];
  for (let at = 0; at < reads; at++) {
    // A table that knows nothing of the kernel, as after a restart.
    const { fields } = await make().sync(plan, "all", stages);
    wrong.push(Number(fields.puts) + Number(fields.deletes));
  }
  await end(changing);
  connection.close();
  process.stdout.write(JSON.stringify({ wrong, changes: Number(said.split("\n")[1]) }));
}

/** Adds and deletes an element until the input ends, and prints how often. */
async function changeForEver(): Promise<void> {
  const connection = new NftablesConnection();
  let isEnded = false;
  process.stdin.on("end", () => (isEnded = true)).resume();
  process.stdout.write("changing\n");
  let count = 0;
  for (; !isEnded; count++) {
    const kind = count % 2 === 0 ? "put" : "delete";
    await connection.commit(other, [{ set: "busy", kind, elements: [{ key: "\0\0\0\0" }] }]);
    if (count % 50 === 0) await new Promise((resolve) => setImmediate(resolve));
  }
  connection.close();
  process.stdout.write(`${count}\n`);
}

async function end(child: ChildProcess): Promise<void> {
  const closed = once(child, "close");
  child.stdin?.end();
  await closed;
}
