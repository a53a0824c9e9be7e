import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as delay, setImmediate as turn } from "node:timers/promises";
import { type Attack, type AttackName, attacks } from "./attacks.ts";

// Runs one attack: `node test/process/attacks/attacker.ts NAME PORT SECONDS`. It ends by itself, and prints
// how many connections it opened and how many bytes it wrote.

const [name = "", port = "", seconds = ""] = process.argv.slice(2);
const attack: Attack = attacks[name as AttackName];
const endMs = performance.now() + Number(seconds) * 1_000;
const open = new Set<Socket>();
let [connectionCount, byteCount] = [0, 0];

/** Keeps one connection open, and sends the attack on it. */
async function attackOnce(): Promise<void> {
  const socket = connect(Number(port), "127.0.0.1");
  socket.on("error", () => undefined);
  open.add(socket);
  const closed = new Promise((resolve) => socket.once("close", resolve)).then(() => open.delete(socket));
  await Promise.race([once(socket, "connect").catch(() => undefined), closed]);
  connectionCount += 1;
  socket.resume();
  for (let index = 0; !socket.destroyed && performance.now() < endMs; index += 1) {
    const piece = attack.piece(index);
    if (piece === undefined || piece.length === 0) break;
    byteCount += piece.length;
    if (!socket.write(piece)) await Promise.race([once(socket, "drain").catch(() => undefined), closed, end]);
    await (attack.pauseMs === undefined ? turn() : delay(attack.pauseMs));
  }
  await Promise.race([closed, end]);
}

const end = delay(endMs - performance.now());

async function attackAgain(): Promise<void> {
  while (performance.now() < endMs) {
    await attackOnce();
    await turn();
  }
}

await Promise.all(Array.from({ length: attack.connections }, attackAgain));
const stillOpen = open.size;
for (const socket of open) socket.destroy();
process.stdout.write(`${connectionCount} connections, ${stillOpen} open at the end, ${byteCount} bytes\n`);
