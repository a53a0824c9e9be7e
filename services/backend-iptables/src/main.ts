#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { iptablesBackend } from "./backend.ts";

await runBackendCommand(iptablesBackend);
