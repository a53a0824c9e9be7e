import type { Laboratory } from "./laboratory.ts";

/** Returns whether an address answers one ping within a second; undefined if `ping` is not installed. */
export async function ping(laboratory: Laboratory, namespace: string, address: string): Promise<boolean | undefined> {
  const { exitCode } = await laboratory.tryRun(namespace, ["ping", "-c", "1", "-W", "1", address]);
  return exitCode === 127 ? undefined : exitCode === 0;
}
