#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { ipvsBackend } from "./backend.ts";

// The program `kpng-ipvs`; `kpng SOURCE to-ipvs` runs the same backend inside `kpng`.
await runBackendCommand(ipvsBackend);
