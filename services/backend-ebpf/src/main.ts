#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { ebpfBackend } from "./backend.ts";

// The program `kpng-ebpf`; `kpng SOURCE to-ebpf` runs the same backend inside `kpng`.
await runBackendCommand(ebpfBackend);
