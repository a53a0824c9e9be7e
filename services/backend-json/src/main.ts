#!/usr/bin/env node
import { runBackendCommand } from "@kpng/backend-kit/backend/run-backend.ts";
import { jsonBackend } from "./json-backend.ts";

await runBackendCommand(jsonBackend);
