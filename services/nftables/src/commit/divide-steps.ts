import {
  type BatchStep,
  type ElementChange,
  type SetElement,
  splitElements,
  stepBytes,
} from "../netlink/element-batch.ts";

/**
 * Divides a transaction into several of at most `limit` bytes each, or leaves it whole if it fits. Pure.
 *
 * The kernel accepts no transaction that exceeds a socket's send buffer. Without CAP_NET_ADMIN in the host's user
 * namespace that is `net.core.wmem_max`, about 2 000 elements by default; a larger change would fail again and again.
 * So it is made in parts, in an order in which each frontend leads to old or new endpoints of its old or new set:
 *
 * 1. The record of the installed plan goes: no restart takes a half of the change for the whole.
 * 2. What is new is added, and what has another value is replaced, each element in one transaction: pick chains, slots
 *    and so on, and then the frontends that count slots.
 * 3. What the new plan lacks is deleted, frontends first.
 * 4. The record of the new plan is added.
 *
 * If a part fails, the next full sync compares everything and makes the rest of the change.
 */
export function* divideSteps(steps: readonly BatchStep[], limit: number): Generator<readonly BatchStep[], void, void> {
  if (steps.reduce((sum, step) => sum + stepBytes(step), 0) <= limit) {
    if (steps.length > 0) yield steps;
    return;
  }
  let [part, bytes]: [BatchStep[], number] = [[], 0];
  for (const unit of inOrder(steps, limit / 4)) {
    const size = unit.reduce((sum, step) => sum + stepBytes(step), 0);
    if (bytes + size > limit && part.length > 0) {
      yield part;
      [part, bytes] = [[], 0];
    }
    part.push(...unit);
    bytes += size;
  }
  if (part.length > 0) yield part;
}

/** Yields steps that belong together, each time about `unitBytes`. */
function* inOrder(steps: readonly BatchStep[], unitBytes: number): Generator<readonly BatchStep[], void, void> {
  const changes = steps.filter((step) => step.kind !== "chain");
  const [records, others] = [changes.filter(isOfRecord), changes.filter((step) => !isOfRecord(step))];
  const [deletes, puts] = [others.filter(({ kind }) => kind === "delete"), others.filter(({ kind }) => kind === "put")];
  const deleted = new Map(deletes.map(({ set, elements }) => [set, keysOf(elements)]));
  // Of sets without deletes, which have no replaced elements, the keys are not needed: a first load has many.
  const put = new Map(puts.filter(({ set }) => deleted.has(set)).map(({ set, elements }) => [set, keysOf(elements)]));
  const isReplaced = (set: string, { key }: SetElement): boolean =>
    deleted.get(set)?.has(key) === true && put.get(set)?.has(key) === true;
  const parts = ({ set, elements }: ElementChange, replaced: boolean) =>
    splitElements(deleted.has(set) ? elements.filter((one) => isReplaced(set, one) === replaced) : elements, unitBytes);
  for (const step of records) if (step.kind === "delete") yield [step];
  for (const step of steps) if (step.kind === "chain") yield [step];
  for (const step of puts.toSorted((a, b) => rankOf(a) - rankOf(b))) {
    for (const elements of parts(step, false)) yield [{ ...step, elements }];
    if (!deleted.has(step.set)) continue;
    for (const elements of parts(step, true)) {
      yield [
        { set: step.set, kind: "delete", elements: elements.map(({ key }) => ({ key })) },
        { ...step, elements },
      ];
    }
  }
  for (const step of deletes) for (const elements of parts(step, false)) yield [{ ...step, elements }];
  for (const step of records) if (step.kind === "put") yield [step];
}

function isOfRecord({ set }: ElementChange): boolean {
  return set === "record";
}

/** Frontends come after what they lead to, which other sets have. */
function rankOf({ set }: ElementChange): number {
  const isFrontend = set.endsWith("frontends") || set.endsWith("nodeports");
  return isFrontend ? (set.startsWith("local_") ? 1 : 2) : 0;
}

function keysOf(elements: readonly SetElement[]): ReadonlySet<string> {
  return new Set(elements.map(({ key }) => key));
}
