import type { BareServerHandlers } from "./bare-server.ts";
import type { MadeChange } from "./batch-log.ts";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers } from "./fan-out-server.ts";
import { startServer } from "./processes.ts";
import type { ServerUsage } from "./server-usage.ts";
import type { SyntheticShape } from "./synthetic.ts";

/** Paths of the PEM files of both sides. */
export interface TlsFilePaths {
  readonly ca: string;
  readonly server: { readonly key: string; readonly crt: string };
  readonly client: { readonly key: string; readonly crt: string };
}

/** Server measured by a row of the benchmark, ours or another. */
export interface ServerUnderTest {
  /** `host:port`. */
  readonly address: string;
  /** Changes one endpoint. `cpuMs` is the server's CPU time before the change. */
  change(): Promise<MadeChange & { readonly cpuMs: number }>;
  /** CPU time so far, all threads, in milliseconds. */
  cpu(): Promise<number>;
  usage(settle: boolean): Promise<ServerUsage>;
  stop(): Promise<void>;
}

/** Our watcher, which offers more calls than other servers. */
export interface OwnServer extends ServerUnderTest {
  readonly calls: Caller<FanOutServerHandlers>;
}

export async function startOwnServer(shape: SyntheticShape, tls: TlsFilePaths | undefined): Promise<OwnServer> {
  const calls = startServer<FanOutServerHandlers>("fan-out-server");
  return { ...(await startShape(calls, shape, tls)), calls };
}

/** Starts the baseline of bare-server.ts. */
export function startBareServer(shape: SyntheticShape, tls: TlsFilePaths | undefined): Promise<ServerUnderTest> {
  return startShape(startServer<BareServerHandlers>("bare-server"), shape, tls);
}

/** Starts a server with the calls that both of our servers offer. */
async function startShape(
  calls: Caller<BareServerHandlers>,
  shape: SyntheticShape,
  tls: TlsFilePaths | undefined,
): Promise<ServerUnderTest> {
  try {
    const paths = tls === undefined ? {} : { tls: { ...tls.server, ca: tls.ca } };
    const { address } = await calls.call("start", { shape, ...paths });
    return {
      address,
      change: () => calls.call("change", {}),
      cpu: () => calls.call("cpu", {}),
      usage: (settle) => calls.call("usage", { settle }),
      stop: () => calls.stop(),
    };
  } catch (error) {
    await calls.stop();
    throw error;
  }
}
