#!/usr/bin/env node
import cluster from "node:cluster";
import { keepListeners, wantsHandover } from "./handover/keep-listeners.ts";

// The program `kpng-userspace`; `kpng SOURCE to-userspace` runs the same backend inside `kpng`. With `--handover`, this
// process only keeps the listeners, and starts the program again to serve.
if (cluster.isPrimary && wantsHandover(process.argv.slice(2), process.env)) keepListeners();
else {
  // Loaded here, because the process that only keeps listeners does not need them.
  const { runBackendCommand } = await import("@kpng/backend-kit/backend/run-backend.ts");
  const { userspaceBackend } = await import("./backend.ts");
  await runBackendCommand(userspaceBackend);
}
