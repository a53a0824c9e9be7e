import { sliceKey } from "@kpng/model/endpoint.ts";
import type { FieldPath } from "../decode/decoded.ts";
import { type InputProblem, type Locate, type ReadDocument, showPlace } from "./input-result.ts";

/**
 * A problem for each object that is there twice, with both places: which of the two is meant, nobody can know.
 *
 * At most `max`.
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
      const other = showPlace(locate(first.document, first.path));
      problems.push({ ...locate(document, path), problem: `${name} is also at ${other}` });
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
      const isOfState = path[0] === "services";
      // The slices of a Service in a state file are there twice because it is.
      if (isOfState && repeated.has(`${value.namespace}/${value.serviceName}`)) continue;
      const isNew = isFirst(`EndpointSlice ${sliceKey(value)}`, document, path);
      // In a cluster a slice's name says who it is; in a state file it says so only together with its Service.
      if (isNew && !isOfState) isFirst(`EndpointSlice ${value.namespace}/${value.name}`, document, path);
    }
  }
  return problems;
}
