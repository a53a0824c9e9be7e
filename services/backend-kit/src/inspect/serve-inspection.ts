import { createServer, type ServerHttp2Session } from "node:http2";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { BackendInspectService } from "@kpng/model/gen/kpng/inspect/v1/backend_pb.ts";
import { listenOnSocket } from "@kpng/process/connection/listen-on-socket.ts";
import type { Task } from "@kpng/process/task.ts";
import { aborted } from "@kpng/process/wait.ts";
import { BackendInspection, type BackendInspectionOptions } from "./backend-inspection.ts";

/** Maximum size of a request, in bytes. No request contains more than one name. */
const maxRequestBytes = 64 * 1024;

/** Inspection of a backend, ready to run. */
export interface ServedInspection {
  /** Observer to register with the sync loop. */
  readonly observer: BackendInspection;
  /** Task that serves the socket. Errors: LISTEN_FAILED. */
  readonly task: Task;
}

/**
 * Returns a task that serves the inspection of a backend on a unix socket (`--inspect-socket`), in gRPC and Connect
 * over HTTP/2, and the observer that it answers from. Only the owner and the group of the socket may connect, because
 * the rules of a node are not public. Called by `backendTask`. Separate from `BackendInspection`, which answers calls
 * and opens no socket.
 */
export function serveInspection(path: string, options: BackendInspectionOptions): ServedInspection {
  const observer = new BackendInspection(options);
  return { observer, task: { name: "inspect", run: (signal) => serve(path, observer, signal) } };
}

async function serve(path: string, inspection: BackendInspection, signal: AbortSignal): Promise<void> {
  const sessions = new Set<ServerHttp2Session>();
  const handle = connectNodeAdapter({
    routes: (router) => router.service(BackendInspectService, inspection.service),
    readMaxBytes: maxRequestBytes,
    // The longest timer of Node.js: with a longer deadline, a timer would fire at once.
    maxTimeoutMs: 2 ** 31 - 1,
  });
  const server = createServer(handle);
  server.on("session", (session) => {
    sessions.add(session);
    session.on("error", () => undefined).once("close", () => sessions.delete(session));
  });
  await listenOnSocket(server, path);
  server.on("error", () => undefined);
  await aborted(signal);
  for (const session of sessions) session.destroy();
  await new Promise((resolve) => server.close(resolve));
}
