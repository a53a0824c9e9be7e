#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { nftBackend } from "./backend.ts";

// The program `kpng-nft`; `kpng SOURCE to-nft` runs the same backend inside `kpng`.
await runBackendCommand(nftBackend);
