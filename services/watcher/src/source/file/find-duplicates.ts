import { sliceKey } from "@kpng/model/endpoint.ts";
import type { FieldPath } from "../decode/decoded.ts";
import { formatLocation, type InputProblem, type Locate, type ReadDocument } from "./input-result.ts";

/**
 * Returns a problem, with both locations, for each object that the input files of `kpng file` define twice; at most
 * `max`. `readTexts` calls it after all files are decoded. Separate from the decoders because they see only one
 * document.
 */
export function findDuplicates(
  documents: readonly ReadDocument[],
  locate: Locate,
  max: number,
): readonly InputProblem[] {
  const problems: InputProblem[] = [];
  const firsts = new Map<string, { readonly document: ReadDocument; readonly path: FieldPath }>();
  // Returns false if the name is already defined.
  const define = (name: string, document: ReadDocument, path: FieldPath): boolean => {
    const first = firsts.get(name);
    if (first === undefined) {
      firsts.set(name, { document, path });
    } else if (problems.length < max) {
      const other = formatLocation(locate(first.document, first.path));
      problems.push({ ...locate(document, path), problem: `${name} is already defined at ${other}` });
    }
    return first === undefined;
  };
  for (const document of documents) {
    const { services, slices, nodes } = document.content;
    for (const { value, path } of nodes) define(`Node ${value.name}`, document, path);
    const repeated = new Set<string>();
    for (const { value, path } of services) {
      const name = `${value.namespace}/${value.name}`;
      if (!define(`Service ${name}`, document, path)) repeated.add(name);
    }
    for (const { value, path } of slices) {
      const isInsideService = path[0] === "services";
      // KPNG's state files contain slices inside their Service. A Service defined twice is reported only once.
      if (isInsideService && repeated.has(`${value.namespace}/${value.serviceName}`)) continue;
      // The key is namespace/service/slice.
      const isNew = define(`EndpointSlice ${sliceKey(value)}`, document, path);
      // In a cluster the name of a slice is unique in its namespace; in a state file only within its Service.
      if (isNew && !isInsideService) define(`EndpointSlice ${value.namespace}/${value.name}`, document, path);
    }
  }
  return problems;
}
