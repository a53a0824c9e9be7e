/**
 * Layers and configuration of an image, as the Dockerfile defines them. `build.ts` reads them, so that an image that is
 * built without Docker cannot differ from one that Docker builds.
 */
export interface ImageDefinition {
  /** Names of the layers, the lowest first. */
  readonly layers: readonly string[];
  readonly env: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  readonly user: string;
  readonly entrypoint: readonly string[];
}

interface Stage {
  readonly base: string;
  readonly instructions: readonly (readonly [keyword: string, rest: string])[];
}

/** Names of the images: the stages that have an entry point. */
export function targetsOf(dockerfile: string): readonly string[] {
  const stages = parseStages(dockerfile);
  const hasEntrypoint = ({ instructions }: Stage): boolean =>
    instructions.some(([keyword]) => keyword === "ENTRYPOINT");
  return [...stages].filter(([, stage]) => hasEntrypoint(stage)).map(([name]) => name);
}

/**
 * Returns the definition of `target`. `args` are build arguments and replace the defaults of ARG.
 *
 * Knows only the instructions that the stages of our images need. Throws if a stage has another one, or if `target` is
 * no stage.
 */
export function readDefinition(
  dockerfile: string,
  target: string,
  args: Readonly<Record<string, string>>,
): ImageDefinition {
  const stages = parseStages(dockerfile);
  const values = new Map<string, string>();
  const definition = { layers: [] as string[], env: [] as string[], labels: {} as Record<string, string> };
  let [user, entrypoint] = ["", [] as readonly string[]];
  for (const [keyword, rest] of chainOf(stages, target)) {
    const text = rest.replace(/\$\{(\w+)\}/g, (_, name: string) => values.get(name) ?? "");
    if (keyword === "ARG") {
      const [name = "", value = ""] = splitAt(text, "=");
      values.set(name, args[name] ?? value);
    } else if (keyword === "COPY") definition.layers.push(layerOf(text));
    else if (keyword === "ENV") definition.env.push(...parsePairs(text).map((pair) => pair.join("=")));
    else if (keyword === "LABEL") Object.assign(definition.labels, Object.fromEntries(parsePairs(text)));
    else if (keyword === "USER") user = text;
    else if (keyword === "ENTRYPOINT") entrypoint = JSON.parse(text) as readonly string[];
    else
      throw new Error(`stage ${target} uses ${keyword} ${rest}, which deploy/images/definition.ts does not implement`);
  }
  return { ...definition, user, entrypoint };
}

function parseStages(dockerfile: string): ReadonlyMap<string, Stage> {
  const stages = new Map<string, Stage & { instructions: (readonly [string, string])[] }>();
  let current: (readonly [string, string])[] = [];
  for (const line of dockerfile
    .replace(/^\s*#.*\n/gm, "")
    .replace(/\\\n\s*/g, "")
    .split("\n")) {
    const [, keyword = "", rest = ""] = /^(\w+)\s+(.*)$/.exec(line) ?? [];
    if (keyword === "FROM") {
      const [, base = "", name = ""] = /(\S+) AS (\S+)$/.exec(rest) ?? [];
      current = [];
      stages.set(name, { base, instructions: current });
    } else if (keyword !== "") current.push([keyword, rest]);
  }
  return stages;
}

/** Returns the instructions of a stage after those of the stages that it is based on. */
function chainOf(stages: ReadonlyMap<string, Stage>, name: string): Stage["instructions"] {
  const stage = stages.get(name);
  if (stage === undefined) throw new Error(`the Dockerfile has no stage ${name}`);
  return [...(stage.base === "scratch" ? [] : chainOf(stages, stage.base)), ...stage.instructions];
}

/** Returns the name of a layer: `nft` for `--from=build /layers/nft/ /`. */
function layerOf(copy: string): string {
  const [, name] = /^--from=build \/layers\/([\w-]+)\/ \/$/.exec(copy) ?? [];
  if (name === undefined) throw new Error(`COPY ${copy} is not a layer of the stage "build"`);
  return name;
}

/** Returns the names and values of `a=1 b="2 3"`. */
function parsePairs(text: string): readonly (readonly [name: string, value: string])[] {
  const pairs = text.matchAll(/([\w.-]+)=(?:"([^"]*)"|(\S*))/g);
  return [...pairs].map(([, name = "", quoted, plain = ""]) => [name, quoted ?? plain]);
}

function splitAt(text: string, separator: string): readonly [string, string] {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
