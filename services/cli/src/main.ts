#!/usr/bin/env node
import { runProcess } from "@kpng/process/run/run-process.ts";
import { makeKpng } from "./kpng.ts";

await runProcess(makeKpng);
