import { apiCommand } from "./api.ts";
import { fileCommand } from "./file.ts";
import { kubeCommand } from "./kube.ts";
import { replayCommand } from "./replay.ts";
import type { SourceCommand } from "./source-command.ts";

/** The sources of `kpng`, in the order of its help. `makeKpng` adds a command for each. */
export const sourceCommands: readonly SourceCommand[] = [kubeCommand, fileCommand, apiCommand, replayCommand];
