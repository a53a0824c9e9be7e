#!/usr/bin/env node
import { launch } from "@kpng/process/bin/launch.mjs";

await launch(new URL("../src/main.ts", import.meta.url));
