import { readFileSync } from "node:fs";
import { memoryLimitBytes } from "@kpng/process/run/memory-limit.ts";

/** Memory and open files available to a process. */
export interface ProcessResources {
  /** Memory, in bytes. */
  readonly memoryBytes: number;
  /** Number of files, including connections, that may be open at once. */
  readonly openFiles: number;
}

/** Limits that follow from the resources of the process, unless options set them. */
export interface DefaultLimits {
  readonly maxConnections: number;
  /** Connections for which there are open files; an option cannot exceed it. */
  readonly maxConnectionFiles: number;
  readonly maxCalls: number;
  /** Memory of requests that have not been read completely, in bytes. */
  readonly maxRequestBytes: number;
  readonly maxQueries: number;
}

/** Memory that a connection with one node takes, in bytes; measured, rounded up. With TLS, it has more buffers. */
const connectionBytes = { plain: 50 * 1_024, tls: 220 * 1_024 };

/** Memory that a query takes while its client does not read, in bytes: 500 rows, and their encoding. */
const queryBytes = 1_024 * 1_024;

/** Files that connections leave to health probes, the source and state files. */
const reservedFiles = 64;

/**
 * Returns the default limits: connections may take half of the memory, and queries an eighth. Guide "Sizing" documents
 * the formula. Pure.
 *
 * `serve` calls it with {@link readResources}, for limits that no option sets. Separate, so that tests can calculate
 * the limits of other machines.
 */
export function defaultLimits({ memoryBytes, openFiles }: ProcessResources, isTls: boolean): DefaultLimits {
  const byMemory = memoryBytes / 2 / (isTls ? connectionBytes.tls : connectionBytes.plain);
  const byFiles = openFiles - Math.min(reservedFiles, openFiles / 2);
  const maxQueries = Math.min(1_000, Math.max(16, Math.floor(memoryBytes / 8 / queryBytes)));
  return {
    maxConnections: Math.max(1, Math.floor(Math.min(byMemory, byFiles))),
    maxConnectionFiles: Math.max(1, Math.floor(byFiles)),
    // A node has one connection with one call, for which connectionBytes includes the memory.
    maxCalls: Math.max(1, Math.floor(memoryBytes / 2 / connectionBytes.plain)),
    // Part of connectionBytes: a node that resumes sends 8 KiB, which wait while its token is checked.
    maxRequestBytes: Math.floor(memoryBytes / 8),
    maxQueries,
  };
}

/** Reads the resources of this process. */
export function readResources(): ProcessResources {
  return { memoryBytes: memoryLimitBytes(), openFiles: readOpenFiles() };
}

/** Node.js raises the soft limit to the hard limit when it starts. */
function readOpenFiles(): number {
  try {
    const [, soft = ""] = /^Max open files\s+(\S+)/m.exec(readFileSync("/proc/self/limits", "utf8")) ?? [];
    return /^\d+$/.test(soft) ? Number(soft) : Number.POSITIVE_INFINITY;
  } catch {
    // Not Linux.
    return Number.POSITIVE_INFINITY;
  }
}
