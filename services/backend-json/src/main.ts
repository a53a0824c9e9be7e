#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { jsonBackend } from "./json-backend.ts";

// The program `kpng-json`; `kpng SOURCE to-json` runs the same backend inside `kpng`.
await runBackendCommand(jsonBackend);
