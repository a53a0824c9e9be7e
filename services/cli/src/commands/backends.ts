import { calloutBackend } from "@kpng/backend-callout/callout-backend.ts";
import { ebpfBackend } from "@kpng/backend-ebpf/backend.ts";
import { iptablesBackend } from "@kpng/backend-iptables/backend.ts";
import { ipvsBackend } from "@kpng/backend-ipvs/backend.ts";
import { jsonBackend } from "@kpng/backend-json/json-backend.ts";
import type { BackendCommand } from "@kpng/backend-kit/backend/backend-command.ts";
import { healthChecksBackend } from "@kpng/backend-kit/proxy/health-checks-backend.ts";
import { nftBackend } from "@kpng/backend-nft/backend.ts";
import { userspaceBackend } from "@kpng/backend-userspace/backend.ts";

/**
 * The backends that are built into `kpng`. A program `kpng-NAME` on the PATH is a backend too, but not in this list.
 *
 * `makeKpng` passes the list to `makeSource`, `makeLocal` and `makeDiff`. Separate from it, because the generated
 * reference of the options reads the list too.
 */
export const builtInBackends: readonly BackendCommand[] = [
  jsonBackend,
  calloutBackend,
  iptablesBackend,
  nftBackend,
  userspaceBackend,
  ipvsBackend,
  ebpfBackend,
  healthChecksBackend,
];
