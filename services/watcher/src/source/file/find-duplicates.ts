import { sliceKey } from "@kpng/model/endpoint.ts";
import type { FieldPath } from "../decode/decoded.ts";
import { formatLocation, type InputProblem, type Locate, type ReadDocument } from "./input-result.ts";

/**
 * Returns a problem with both locations for each object that is defined twice in the inputs; at most `max`.
 */
export function findDuplicates(
  documents: readonly ReadDocument[],
  locate: Locate,
  max: number,
): readonly InputProblem[] {
  const problems: InputProblem[] = [];
  const firsts = new Map<string, { readonly document: ReadDocument; readonly path: FieldPath }>();
  const isFirst = (name: string, document: ReadDocument, path: FieldPath): boolean => {
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
    for (const { value, path } of nodes) isFirst(`Node ${value.name}`, document, path);
    const repeated = new Set<string>();
    for (const { value, path } of services) {
      const name = `${value.namespace}/${value.name}`;
      if (!isFirst(`Service ${name}`, document, path)) repeated.add(name);
    }
    for (const { value, path } of slices) {
      const isStateFile = path[0] === "services";
      // A state file contains slices inside their Service, so a Service defined twice is reported only once.
      if (isStateFile && repeated.has(`${value.namespace}/${value.serviceName}`)) continue;
      const isNew = isFirst(`EndpointSlice ${sliceKey(value)}`, document, path);
      // In a cluster the name of a slice is unique in its namespace; in a state file only within its Service.
      if (isNew && !isStateFile) isFirst(`EndpointSlice ${value.namespace}/${value.name}`, document, path);
    }
  }
  return problems;
}
