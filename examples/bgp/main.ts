import { runBackend } from "@kpng/backend-kit";
import { bgpAnnouncer } from "./bgp-announcer.ts";

await runBackend(bgpAnnouncer);
