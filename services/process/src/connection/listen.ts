import { once } from "node:events";
import { existsSync, rmSync, statSync } from "node:fs";
import { connect, type Server } from "node:net";
import { dirname } from "node:path";
import { withoutCredentials } from "../log.ts";
import { ProcessError } from "../process-error.ts";

/**
 * Splits `host:port`. An undefined host in the result stands for all addresses. Errors: BAD_OPTION, which names
 * `option`, from which the value comes.
 */
export function parseHostPort(
  address: string,
  option?: string,
): { readonly host: string | undefined; readonly port: number } {
  const match = /^(?:\[([0-9A-Fa-f:.]+)\]|([^[\]:]*)):(\d{1,5})$/.exec(address);
  const port = Number(match?.[3]);
  if (match === null || port > 65_535) {
    throw new ProcessError(
      "BAD_OPTION",
      `${option === undefined ? "" : `${option} `}"${withoutCredentials(address)}" is not an address: write host:port, [IPv6]:port or :port, port 0 to 65535`,
    );
  }
  const host = match[1] ?? match[2];
  return { host: host === "" ? undefined : host, port };
}

/**
 * Makes a server listen on a unix socket to which only the socket's owner and group may connect, as in KPNG. A socket
 * that a killed process left behind is removed; a socket that another process serves is kept, and so is any other kind
 * of file. Errors: LISTEN_FAILED.
 */
export async function listenOnSocket(server: Server, path: string): Promise<void> {
  await removeStaleSocket(path);
  // `listen` creates the socket before it returns, so the umask is needed: with a later chmod, anyone could connect for
  // a moment.
  const umask = process.umask(0o117);
  server.listen(path);
  process.umask(umask);
  await once(server, "listening").catch((cause: unknown) => {
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}`, { cause });
  });
}

async function removeStaleSocket(path: string): Promise<void> {
  // Without this check, listen() would report EACCES, "permission denied".
  if (!existsSync(dirname(path)))
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: folder ${dirname(path)} does not exist`);
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat === undefined) return;
  if (!stat.isSocket())
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: the path is a file that is not a socket`);
  const probe = connect(path);
  const isServed = await once(probe, "connect").then(
    () => true,
    () => false,
  );
  probe.destroy();
  if (isServed)
    throw new ProcessError("LISTEN_FAILED", `cannot listen on unix://${path}: another process listens on it`);
  rmSync(path);
}
