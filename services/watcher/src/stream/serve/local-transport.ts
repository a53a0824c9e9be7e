import { createConnectRouter, createContextValues, type Transport } from "@connectrpc/connect";
import { createUniversalHandlerClient, type UniversalHandler } from "@connectrpc/connect/protocol";
import { createTransport } from "@connectrpc/connect/protocol-connect";
import { everyRight } from "../../identity/rights.ts";
import { rightsKey } from "./peer.ts";
import { makeRoutes, type RoutesOptions } from "./routes.ts";

/**
 * Returns a transport to the services of a watcher in the same process. Its calls have every right; those of
 * createRouterTransport of the Connect library come from no connection and would have none. Watches of health end when
 * `stop` aborts.
 *
 * `kpng SOURCE to-local` and `kpng SOURCE get` call it. Separate from `serve`, which needs sockets, TLS and limits.
 */
export function localTransport(options: RoutesOptions, stop: AbortSignal): Transport {
  const router = createConnectRouter({ connect: true });
  makeRoutes(options, stop)(router);
  return createTransport({
    httpClient: createUniversalHandlerClient(router.handlers.map(trusted)),
    baseUrl: "https://in-memory",
    useBinaryFormat: true,
    interceptors: [],
    acceptCompression: [],
    sendCompression: null,
    compressMinBytes: Number.MAX_SAFE_INTEGER,
    readMaxBytes: Number.MAX_SAFE_INTEGER,
    writeMaxBytes: Number.MAX_SAFE_INTEGER,
  });
}

/** Gives the calls of a handler every right. */
function trusted(handler: UniversalHandler): UniversalHandler {
  const { requestPath, allowedMethods, protocolNames, supportedContentType, method, service } = handler;
  const handle: UniversalHandlerFn = (request) =>
    handler({ ...request, contextValues: createContextValues().set(rightsKey, everyRight("this process")) });
  return Object.assign(handle, { requestPath, allowedMethods, protocolNames, supportedContentType, method, service });
}

type UniversalHandlerFn = (...call: Parameters<UniversalHandler>) => ReturnType<UniversalHandler>;
