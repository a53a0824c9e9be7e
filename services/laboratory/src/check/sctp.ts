import { existsSync, readFileSync } from "node:fs";
import type { Answer } from "../agent/request.ts";
import type { Laboratory } from "../laboratory.ts";
import { hosts, type PodName } from "../scenario/places.ts";

const python = "/usr/bin/python3";

/**
 * Returns the command that runs sctp.py. It passes the source itself, because a bundle in the executable kpng has no
 * file that Python could read.
 */
function program(): readonly string[] {
  const isBundled = typeof bundledSctp !== "undefined";
  return [python, "-c", isBundled ? bundledSctp : readFileSync(new URL("sctp.py", import.meta.url), "utf8")];
}

/** Content of sctp.py. Only bundles define this constant (deploy/images/bundle.ts). */
declare const bundledSctp: string | undefined;

/** Returns the reason why SCTP packets cannot be sent here; undefined if they can. */
export function whyNoSctp(): string | undefined {
  if (!existsSync(python)) return `no ${python}, and Node.js does not speak SCTP`;
  if (existsSync("/proc/sys/net/netfilter/nf_conntrack_sctp_timeout_established")) return undefined;
  return "the kernel does not track SCTP associations";
}

/**
 * Starts an SCTP responder in each pod; resolves when all are ready. They end with the laboratory. Errors: one of them
 * ends, with what it wrote to stderr.
 */
export async function serveSctp(laboratory: Laboratory, ports: readonly number[]): Promise<void> {
  const names: readonly PodName[] = ["a", "b", "c", "d"];
  await Promise.all(
    names.map(async (name) => {
      const { v4, v6 } = hosts[name];
      await laboratory.startServer(name, [...program(), "serve", name, ports.join(","), v4, v6]);
    }),
  );
}

interface SctpQuestion {
  readonly address: string;
  readonly port: number;
  /** Address of the sender if it has several. */
  readonly from: string | undefined;
  readonly timeoutMs: number;
  /** Number of different hosts that should answer. */
  readonly wanted: number;
}

/** Sends packets from a namespace, at most 64, until enough hosts have answered. */
export async function askSctp(laboratory: Laboratory, namespace: string, question: SctpQuestion): Promise<Answer[]> {
  const { address, port, from = "-", timeoutMs, wanted } = question;
  const words = [address, port, from, timeoutMs, wanted, 64].map(String);
  return JSON.parse(await laboratory.run(namespace, [...program(), "ask", ...words])) as Answer[];
}
