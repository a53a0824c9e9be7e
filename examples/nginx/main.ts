import { runBackendCommand } from "@kpng/backend-kit";
import { nginxBackend } from "./nginx-backend.ts";

await runBackendCommand(nginxBackend);
