import { readFileSync } from "node:fs";
import { join } from "node:path";

/** Returns the variables of the watcher's image. */
function imageVariables(): Readonly<Record<string, string>> {
  const dockerfile = readFileSync(join(import.meta.dirname, "../../deploy/images/Dockerfile"), "utf8");
  const [, stage = ""] = /^FROM base AS watcher\n(.*?)^FROM/ms.exec(dockerfile) ?? [];
  const variables = stage.matchAll(/^ENV (\w+)=(?:"(.*)"|(.*))$/gm);
  return Object.fromEntries([...variables].map(([, name, quoted, plain]) => [name, quoted ?? plain]));
}

/** Returns the environment of this process, and the variables of the watcher's image that are not set in it. */
export function watcherEnvironment(): NodeJS.ProcessEnv {
  return { ...imageVariables(), ...process.env };
}
