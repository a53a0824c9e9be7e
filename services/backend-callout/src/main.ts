#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { calloutBackend } from "./callout-backend.ts";

await runBackendCommand(calloutBackend);
