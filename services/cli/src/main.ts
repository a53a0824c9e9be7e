#!/usr/bin/env node
import { runProcess } from "@kpng/process/run/run-process.ts";
import { kubectlWords } from "./commands/kubectl-words.ts";
import { makeKpng } from "./kpng.ts";

// The program `kpng`: this file only starts it, so tests can import the commands without running them.
await runProcess(makeKpng, process.argv, kubectlWords);
