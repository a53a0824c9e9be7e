import type { ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import type { Laboratory } from "@kpng/laboratory/laboratory.ts";
import type { Host } from "@kpng/laboratory/one-node.ts";
import type { Question, Reply } from "./question.ts";

/** Starts a pod that answers with its name, and returns when it does. */
export async function startPod(laboratory: Laboratory, pod: Host, ports: readonly number[]): Promise<void> {
  const child = laboratory.start(pod.name, program("./pod.ts", pod.name, ...ports.map(String)));
  await firstOutput(child, pod.name);
}

/** Asks questions from one namespace. */
export interface Client {
  ask(question: Question): Promise<Reply>;
}

export function startClient(laboratory: Laboratory, host: Host): Client {
  const child = laboratory.start(host.name, program("./client.ts"));
  const waiting = new Map<number, (reply: Reply) => void>();
  if (child.stdout !== null) {
    createInterface({ input: child.stdout }).on("line", (line) => {
      const [number, reply]: [number, Reply] = JSON.parse(line);
      waiting.get(number)?.(reply);
      waiting.delete(number);
    });
  }
  child.once("close", () => {
    for (const resolve of waiting.values()) resolve({ kind: "silence", reason: "the client ended" });
  });
  child.stdin?.on("error", () => undefined);
  let count = 0;
  return {
    ask: (question) =>
      new Promise((resolve) => {
        count += 1;
        waiting.set(count, resolve);
        child.stdin?.write(`${JSON.stringify([count, question])}\n`);
      }),
  };
}

/** Says whether an address answers ping from a namespace; undefined where `ping` is not installed. */
export async function ping(laboratory: Laboratory, from: Host, address: string): Promise<boolean | undefined> {
  const { exitCode } = await laboratory.finish(from.name, ["ping", "-c", "1", "-W", "1", address]);
  return exitCode === 127 ? undefined : exitCode === 0;
}

/** The command that runs a file beside this one with the Node.js of this process. */
function program(file: string, ...options: readonly string[]): readonly string[] {
  return [process.execPath, fileURLToPath(new URL(file, import.meta.url)), ...options];
}

async function firstOutput(child: ChildProcess, name: string): Promise<void> {
  let stderr = "";
  child.stderr?.on("data", (data) => {
    stderr += String(data);
  });
  const ended = once(child, "close").then(() => Promise.reject(new Error(`${name} ended: ${stderr.trim()}`)));
  if (child.stdout !== null) await Promise.race([once(child.stdout, "data"), ended]);
  // From here on its end is the end of the laboratory, and nobody waits for it.
  ended.catch(() => undefined);
}
