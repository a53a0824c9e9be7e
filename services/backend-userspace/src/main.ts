#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { userspaceBackend } from "./backend.ts";

// The program `kpng-userspace`; `kpng SOURCE to-userspace` runs the same backend inside `kpng`.
await runBackendCommand(userspaceBackend);
