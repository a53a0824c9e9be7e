import { readFileSync } from "node:fs";
import { join } from "node:path";
import { bundleOptions } from "../../deploy/images/bundle-options.ts";
import { readDefinition } from "../../deploy/images/definition.ts";

/** Returns the variables of the watcher's image, with which benchmarks and tests of memory start watchers. */
export function imageVariables(): Readonly<Record<string, string>> {
  const dockerfile = readFileSync(join(bundleOptions.absWorkingDir, "deploy/images/Dockerfile"), "utf8");
  const variables = readDefinition(dockerfile, "watcher", {}).env.map((variable) => {
    const [name = "", ...value] = variable.split("=");
    return [name, value.join("=")];
  });
  return Object.fromEntries(variables);
}

/** Returns the environment of this process, and the variables of the watcher's image that are not set in it. */
export function watcherEnvironment(): NodeJS.ProcessEnv {
  return { ...imageVariables(), ...process.env };
}
