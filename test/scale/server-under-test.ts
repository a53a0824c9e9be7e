import type { BareServerHandlers } from "./bare-server.ts";
import type { MadeChange } from "./batch-log.ts";
import type { Caller } from "./calls.ts";
import type { FanOutServerHandlers, ServerUsage } from "./fan-out-server.ts";
import { startServer } from "./processes.ts";
import type { SyntheticShape } from "./synthetic.ts";

/** Paths of the PEM files of both sides. */
export interface TlsFilePaths {
  readonly ca: string;
  readonly server: { readonly key: string; readonly crt: string };
  readonly client: { readonly key: string; readonly crt: string };
}

/** What a row of the benchmark needs of a server, ours or another. */
export interface ServerUnderTest {
  /** `host:port`. */
  readonly address: string;
  /** Changes one endpoint. `cpuMs` is the server's CPU time just before. */
  change(): Promise<MadeChange & { readonly cpuMs: number }>;
  /** CPU time so far, all threads, in milliseconds. */
  cpu(): Promise<number>;
  usage(settle: boolean): Promise<ServerUsage>;
  stop(): Promise<void>;
}

/** Our watcher, with what only it can be asked for. */
export interface OwnServer extends ServerUnderTest {
  readonly calls: Caller<FanOutServerHandlers>;
}

export async function startOwnServer(shape: SyntheticShape, tls: TlsFilePaths | undefined): Promise<OwnServer> {
  const calls = startServer<FanOutServerHandlers>("fan-out-server");
  try {
    const paths = tls === undefined ? {} : { tls: { ...tls.server, ca: tls.ca } };
    const { address } = await calls.call("start", { shape, ...paths });
    return {
      address,
      calls,
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

/** The floor; see bare-server.ts. */
export async function startBareServer(shape: SyntheticShape, tls: TlsFilePaths | undefined): Promise<ServerUnderTest> {
  const calls = startServer<BareServerHandlers>("bare-server");
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
