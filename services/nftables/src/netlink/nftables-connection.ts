import { constants } from "node:os";
import { getSystemErrorName, isDeepStrictEqual } from "node:util";
import { getOrMake } from "@kpng/model/collections.ts";
import type { ElementBytes, ElementValue } from "../layout/elements.ts";
import { attribute, flags, messageType, nftables } from "./constants.ts";
import { forEachAttribute, NetlinkWriter, nfnetlinkHeaderBytes, readMessages } from "./messages.ts";
import { BackendNftError, NetlinkSocket } from "./netlink-socket.ts";
import { readChain, readElementList, readRule, readSet, readTable, type TableObjects } from "./read-objects.ts";
import { type BatchStep, type EncodedBatch, encodeBatch, type TableId } from "./transaction.ts";

/** Largest generation. The kernel's counter has 32 bits and skips 0. */
const maxGeneration = 0xffff_ffff;

/**
 * Tracks whether another program has changed the ruleset of this network namespace. The connections of both families
 * share one instance, because the kernel counts all changes to a namespace in one number, the generation.
 *
 * A commit that names the expected generation is refused if there was another change (ERESTART). If it succeeds, it has
 * created the next generation, and no other change came before it.
 */
export class RulesetChanges {
  /** The newest generation up to which all changes are known. */
  #expected: number | undefined;
  #foreign = 0;

  /** The generation that the next commit should name; undefined if it must be read first. */
  get expected(): number | undefined {
    return this.#expected;
  }

  /**
   * Records a successful commit of `steps` that named `generation`. The kernel does not count a transaction that
   * changes nothing, such as one that puts elements that already exist; the next change, by any program, gets the
   * generation that this transaction would have got. So the generation is unknown after a commit that contains only
   * puts.
   */
  committed(generation: number, steps: readonly BatchStep[]): void {
    const isCounted = steps.some(
      (step) => step.kind === "chain" || (step.kind === "delete" && step.elements.length > 0),
    );
    this.#expected = isCounted && generation < maxGeneration ? generation + 1 : undefined;
  }

  /** Records that another program has, or may have, changed the ruleset. */
  disturbed(): void {
    this.#foreign += 1;
    this.#expected = undefined;
  }

  /**
   * Records the current generation. Returns a number that differs from the last returned one if other programs have
   * changed anything, or if that is unknown, as it is after a commit that contains only puts.
   */
  observe(generation: number): number {
    if (generation !== this.#expected) this.disturbed();
    this.#expected = generation;
    return this.#foreign;
  }
}

/** Size in bytes from which a transaction is sent on another thread, so that it does not block the event loop. */
const offThreadBytes = 64 * 1024;

/** ERESTART, which Node.js does not name: the ruleset no longer has the generation that the batch names. */
const errnoRestart = -85;

/** Maximum number of attempts to read a list that keeps being interrupted. */
const maxReads = 10;

/**
 * Changes and reads elements of nftables sets and maps through netlink, without starting a process and without reading
 * the rest of the ruleset. The cost depends only on the number of elements, whatever else the network namespace
 * contains.
 *
 * Calls run one at a time; a second call begins when the first has ended.
 */
export class NftablesConnection {
  readonly #socket: NetlinkSocket;
  readonly #changes: RulesetChanges;
  #last: Promise<unknown> = Promise.resolve();

  /**
   * All connections in a network namespace should share `changes`. `bufferBytes`, for tests, is a send buffer as small
   * as that of a process without CAP_NET_ADMIN on the host. Errors: NETLINK_UNAVAILABLE.
   */
  constructor(changes = new RulesetChanges(), bufferBytes?: number) {
    this.#changes = changes;
    this.#socket = NetlinkSocket.open(bufferBytes);
  }

  /** Largest transaction, in bytes. */
  get maxTransactionBytes(): number {
    return this.#socket.maxSendBytes;
  }

  /**
   * Applies either all steps, in one transaction, or none of them.
   *
   * Errors: COMMIT_REJECTED with the set and the kernel's reason, in which case nothing has changed;
   * NETLINK_UNAVAILABLE if the transaction exceeds {@link maxTransactionBytes}.
   */
  commit(table: TableId, steps: readonly BatchStep[]): Promise<void> {
    return this.#inTurn(async () => {
      const { expected } = this.#changes;
      const batch = encodeBatch(table, steps, expected);
      if (batch.steps.length === 0) return;
      if ((await this.#sendBatch(table, batch)) === "restart") {
        this.#changes.disturbed();
        await this.#sendBatch(table, encodeBatch(table, steps));
      } else if (expected !== undefined) this.#changes.committed(expected, steps);
    });
  }

  /**
   * Returns a number that differs from the last returned one if anything in this network namespace may have changed,
   * except through commits of connections that share this `RulesetChanges`.
   */
  generation(): Promise<number> {
    return this.#inTurn(async () => this.#changes.observe(this.#readGeneration()));
  }

  /**
   * Returns the elements of a set or map: for each key its data, or "" if it is a set. After each datagram from the
   * kernel (about 300 elements) the event loop gets a turn.
   *
   * Errors: READ_FAILED, e.g. if the table or set does not exist, or its elements changed during each attempt.
   */
  readElements(table: TableId, set: string): Promise<Map<ElementBytes, ElementValue>> {
    const request = (writer: NetlinkWriter): void => {
      writer.text(attribute.elementList.table, table.name);
      writer.text(attribute.elementList.set, set);
    };
    const begin = () => new Map<ElementBytes, ElementValue>();
    return this.#dump(table, `set ${set}`, nftables.getElement, request, begin, (bytes, result) =>
      readElementList(bytes, (key, value) => void result.set(key, value)),
    );
  }

  /**
   * Returns the rules of each non-empty chain of a table, as strings that are equal if the rules are equal.
   *
   * Errors: READ_FAILED, e.g. if the rules changed during each attempt.
   */
  async readChains(table: TableId): Promise<ReadonlyMap<string, readonly string[]>> {
    const request = (writer: NetlinkWriter): void => writer.text(attribute.rule.table, table.name);
    const rules = new Map<string, string[]>();
    for (const { chain, text } of await this.#list(table, "its rules", nftables.getRule, readRule, request)) {
      getOrMake(rules, chain, () => []).push(text);
    }
    return rules;
  }

  /** Returns the names of the chains and sets of a table; undefined if it does not exist. Errors: READ_FAILED. */
  async listObjects(table: TableId): Promise<TableObjects | undefined> {
    const [found] = await this.#list(table, "the list of tables", nftables.getTable, readTable);
    if (found === undefined) return undefined;
    const chains = await this.#list(table, "its chains", nftables.getChain, readChain);
    const sets = await this.#list(table, "its sets", nftables.getSet, readSet);
    const hooks = found.isDormant
      ? []
      : chains.flatMap(({ name, hook }) => (hook === undefined ? [] : [[name, hook] as const]));
    return { chains: chains.map(({ name }) => name), hooks: new Map(hooks), sets };
  }

  close(): void {
    this.#socket.close();
  }

  /** Reads a list from the kernel, and decodes the messages about one table. */
  #list<Item extends { readonly table: string }>(
    table: TableId,
    what: string,
    type: number,
    decode: (bytes: Buffer) => Item,
    write: (writer: NetlinkWriter) => void = () => undefined,
  ): Promise<readonly Item[]> {
    const begin = (): Item[] => [];
    return this.#dump(table, what, type, write, begin, (bytes, items) => {
      const item = decode(bytes);
      if (item.table === table.name) items.push(item);
    });
  }

  /**
   * Reads a list from the kernel. `begin` makes the empty result of one attempt, and `take` adds a message to it.
   *
   * The kernel marks a list as interrupted if any table of the network namespace has changed in the meantime. If
   * another program never stops changing its own tables, every long list is marked, although our list is correct.
   * Therefore an interrupted list is read again, and accepted if two attempts in a row have the same result.
   */
  #dump<Result>(
    table: TableId,
    what: string,
    type: number,
    write: (writer: NetlinkWriter) => void,
    begin: () => Result,
    take: (bytes: Buffer, result: Result) => void,
  ): Promise<Result> {
    const failed = (reason: string): BackendNftError =>
      new BackendNftError("READ_FAILED", `${what} of table ${table.name} (${table.family}) cannot be read: ${reason}`);
    return this.#inTurn(async () => {
      const writer = new NetlinkWriter(256);
      const family = table.family === "v4" ? 2 : 10;
      writer.message({ type, flags: flags.request | flags.dump, sequence: 1, family }, () => write(writer));
      let last: Result | undefined;
      for (let count = 0; count < maxReads; count++) {
        const result = begin();
        const end = await this.#dumpOnce(writer.bytes, (bytes) => take(bytes, result), failed);
        if (end === "complete" || isDeepStrictEqual(result, last)) return result;
        last = end === "interrupted" ? result : undefined;
      }
      throw failed(`it changed during each of ${maxReads} attempts`);
    });
  }

  /** Returns the generation of the ruleset: any change in this network namespace, by any program, increments it. */
  #readGeneration(): number {
    const writer = new NetlinkWriter(64);
    writer.message({ type: nftables.getGeneration, flags: flags.request, sequence: 1, family: 0 });
    this.#discardInput();
    this.#socket.send(writer.bytes);
    const answer = this.#socket.receive();
    let id: number | undefined;
    for (const message of answer === undefined ? [] : readMessages(answer)) {
      if (message.type !== nftables.newGeneration) continue;
      forEachAttribute(message.payload.subarray(nfnetlinkHeaderBytes), (type, value) => {
        if (type === attribute.generation.id) id = value.readUInt32BE(0);
      });
    }
    if (id !== undefined) return id;
    throw new BackendNftError("READ_FAILED", "the kernel did not report the generation of its ruleset");
  }

  /**
   * Sends a batch and reads its outcome; "restart" if the ruleset no longer has the generation that the batch
   * names.
   */
  async #sendBatch(table: TableId, batch: EncodedBatch): Promise<"committed" | "restart"> {
    this.#discardInput();
    if (batch.bytes.length < offThreadBytes) this.#socket.send(batch.bytes);
    else await this.#socket.sendOffThread(batch.bytes);
    return this.#readOutcome(table, batch);
  }

  /**
   * Sends a request for a list once, and calls `take` with each message of the answer. Throws what `failed` returns for
   * a reason.
   */
  async #dumpOnce(
    request: Buffer,
    take: (bytes: Buffer) => void,
    failed: (reason: string) => BackendNftError,
  ): Promise<DumpEnd> {
    this.#discardInput();
    this.#socket.send(request);
    let isInterrupted = false;
    for (;;) {
      const answer = this.#socket.receive();
      if (answer === undefined) throw failed("the list ended early");
      for (const { type, flags: marks, payload } of readMessages(answer)) {
        // A table of this network namespace, ours or another, changed while the kernel was sending the list.
        isInterrupted ||= (marks & flags.dumpInterrupted) !== 0;
        if (type === messageType.done || type === messageType.error) {
          // The last message of a list contains an error number, too; it is not 0 if the kernel could not continue the
          // list.
          const code = payload.length < 4 ? 0 : payload.readInt32LE(0);
          if (code === -constants.errno.EINTR) return "broken-off";
          if (code < 0) throw failed(describeError(code));
          return isInterrupted ? "interrupted" : "complete";
        }
        take(payload.subarray(nfnetlinkHeaderBytes));
      }
      await new Promise((resolve) => setImmediate(resolve));
    }
  }

  /** Discards late answers to an earlier request, so that they are not mistaken for answers to the next one. */
  #discardInput(): void {
    while (this.#socket.receive() !== undefined);
  }

  /** Reads the answers to a transaction, which have arrived during `send`; throws COMMIT_REJECTED if it was refused. */
  #readOutcome(table: TableId, { steps }: EncodedBatch): "committed" | "restart" {
    const refusals: string[] = [];
    let isAcknowledged = false;
    for (let answer = this.#socket.receive(); answer !== undefined; answer = this.#socket.receive()) {
      for (const { type, sequence, payload } of readMessages(answer)) {
        if (type !== messageType.error) continue;
        const code = payload.readInt32LE(0);
        if (code === errnoRestart) return "restart";
        if (code === 0) isAcknowledged ||= sequence === steps.length;
        else refusals.push(`${describeStep(steps[sequence - 1])}: ${describeError(code)}`);
      }
    }
    if (refusals.length === 0 && isAcknowledged) return "committed";
    const reason = refusals.length === 0 ? "no acknowledgement" : [...new Set(refusals)].slice(0, 5).join("; ");
    throw new BackendNftError(
      "COMMIT_REJECTED",
      `the kernel rejected a transaction of ${steps.length} messages on table ${table.name} (${table.family}): ${reason}`,
    );
  }

  /** Runs work after all earlier work has ended. */
  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const run = this.#last.then(work);
    this.#last = run.catch(() => undefined);
    return run;
  }
}

/**
 * How the reading of a list ended: "interrupted" if all of it was read but something changed in the meantime;
 * "broken-off" if the kernel stopped before the end of the list.
 */
type DumpEnd = "complete" | "interrupted" | "broken-off";

/**
 * Returns the name of an error number. For EPERM it adds the missing capability, which the name alone would not tell an
 * administrator.
 */
function describeError(code: number): string {
  const name = getSystemErrorName(code);
  return name === "EPERM" ? "EPERM: this process lacks CAP_NET_ADMIN" : name;
}

function describeStep(step: BatchStep | undefined): string {
  if (step === undefined) return "the transaction";
  return step.kind === "chain" ? `add chain ${step.chain}` : `${step.kind} in set ${step.set}`;
}
