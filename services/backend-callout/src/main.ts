#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { calloutBackend, inputOption } from "./callout-backend.ts";

// The program `kpng-callout`; `kpng SOURCE to-callout` runs the same backend inside `kpng`.
await runBackendCommand({
  ...calloutBackend,
  options: calloutBackend.options.map((option) =>
    option === inputOption ? { ...option, aliases: ["--input"] } : option,
  ),
});
