import { type EndpointSlice, sliceKey } from "@kpng/model/endpoint.ts";
import type { Node } from "@kpng/model/node.ts";
import { type Service, serviceKey } from "@kpng/model/service.ts";
import { type FieldPath, showPath } from "../decode/decoded.ts";

/** Something invalid or unusual in an input file. */
export interface InputProblem {
  /** *Shape:* `state.yaml`, `shop.yaml, document 3`, and `state.yaml:7:5` (line and column) for a syntax error. */
  readonly at: string;
  /** Begins with the path of the field if the problem concerns a field. */
  readonly problem: string;
}

export interface Place {
  readonly file: string;
  /** The file and, if it has several documents, the document; see {@link InputProblem}. */
  readonly at: string;
  readonly path: FieldPath;
}

/** Returns the place of a field below a place. */
export function below(place: Place, ...steps: FieldPath): Place {
  return { ...place, path: [...place.path, ...steps] };
}

/** The objects of all documents, and everything that is wrong or unusual about them. */
export class InputContent {
  readonly services: Service[] = [];
  readonly slices: EndpointSlice[] = [];
  readonly nodes: Node[] = [];
  readonly problems: InputProblem[] = [];
  readonly #notes: InputProblem[] = [];
  /** Numbers of objects of other kinds, by file and by a description such as "Deployment (apps/v1)". */
  readonly #otherKinds = new Map<string, Map<string, number>>();
  readonly #definitions = new Map<string, Place>();

  addService(service: Service, place: Place): void {
    if (this.#define(`Service ${serviceKey(service)}`, place)) this.services.push(service);
  }

  addSlice(slice: EndpointSlice, place: Place): void {
    if (!this.#define(`EndpointSlice ${sliceKey(slice)}`, place)) return;
    // The name of a slice is unique within its namespace or, in a state file, only within its Service.
    const isInsideService = place.path[0] === "services";
    if (!isInsideService && !this.#define(`EndpointSlice ${slice.namespace}/${slice.name}`, place)) return;
    this.slices.push(slice);
  }

  addNode(node: Node, place: Place): void {
    if (this.#define(`Node ${node.name}`, place)) this.nodes.push(node);
  }

  addProblem(place: Place, problem: string): void {
    this.problems.push(problemAt(place, problem));
  }

  addNote(place: Place, note: string): void {
    this.#notes.push(problemAt(place, note));
  }

  /** Counts an object that no proxy needs. */
  ignore(kind: string, { file }: Place): void {
    const counts = this.#otherKinds.get(file) ?? new Map<string, number>();
    this.#otherKinds.set(file, counts.set(kind, (counts.get(kind) ?? 0) + 1));
  }

  get notes(): readonly InputProblem[] {
    const ignored = [...this.#otherKinds].flatMap(([file, counts]) =>
      [...counts].map(([kind, count]) => ({ at: file, problem: `ignored ${count} of kind ${kind}` })),
    );
    return [...this.#notes, ...ignored];
  }

  /** Returns false, and adds a problem with both places, if the name is already defined. */
  #define(name: string, place: Place): boolean {
    const first = this.#definitions.get(name);
    if (first === undefined) this.#definitions.set(name, place);
    else {
      const other = [first.at, showPath(first.path)].filter((part) => part !== "").join(": ");
      this.addProblem(place, `${name} is already defined at ${other}`);
    }
    return first === undefined;
  }
}

function problemAt({ at, path }: Place, problem: string): InputProblem {
  const field = showPath(path);
  return { at, problem: field === "" ? problem : `${field}: ${problem}` };
}
