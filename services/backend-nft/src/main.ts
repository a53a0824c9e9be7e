#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { nftBackend } from "./backend.ts";

await runBackendCommand(nftBackend);
