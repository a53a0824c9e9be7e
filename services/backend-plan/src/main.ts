#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { planBackend } from "./plan-backend.ts";

// The program `kpng-plan`; `kpng SOURCE to-plan` runs the same backend inside `kpng`.
await runBackendCommand(planBackend);
