#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { iptablesBackend } from "./backend.ts";

// The program `kpng-iptables`; `kpng SOURCE to-iptables` runs the same backend inside `kpng`.
await runBackendCommand(iptablesBackend);
