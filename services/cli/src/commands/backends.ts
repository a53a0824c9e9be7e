import { calloutBackend } from "@kpng/backend-callout/callout-backend.ts";
import { iptablesBackend } from "@kpng/backend-iptables/backend.ts";
import { jsonBackend } from "@kpng/backend-json/json-backend.ts";
import type { BackendCommand } from "@kpng/backend-kit/backend-command.ts";
import { healthChecksBackend } from "@kpng/backend-kit/health-check/health-checks-backend.ts";

/** The backends that `kpng` has in itself; further ones are programs `kpng-NAME` on the PATH. */
export const builtInBackends: readonly BackendCommand[] = [
  jsonBackend,
  calloutBackend,
  iptablesBackend,
  healthChecksBackend,
];
