import { getSystemErrorName } from "node:util";
import {
  elementList,
  flags,
  generationId,
  messageType,
  nftables,
  rule as ruleAttribute,
  table as tableAttribute,
} from "./constants.ts";
import { type BatchStep, type EncodedBatch, encodeBatch, type TableId } from "./element-batch.ts";
import { forEachAttribute, nfnetlinkHeaderBytes, readMessages } from "./netlink-reader.ts";
import { NetlinkSocket } from "./netlink-socket.ts";
import { NetlinkWriter } from "./netlink-writer.ts";
import { BackendNftError } from "./nft-error.ts";
import {
  type ReadElement,
  readChain,
  readElementList,
  readRule,
  readSet,
  readText,
  type TableObjects,
} from "./read-objects.ts";

/** Above this size a transaction is sent on a thread of its own, so that the event loop goes on. */
const offThreadBytes = 64 * 1024;

/** NLM_F_DUMP_INTR: the listed objects changed during the listing. */
const dumpInterrupted = 0x10;

/**
 * Changes and reads elements of nftables sets and maps through netlink, without a process and without reading the rest
 * of the ruleset. The cost is that of the elements, whatever else the network namespace contains.
 *
 * `NftTable` commits transactions with it, and `read/` reads the table. It runs the dialogue with the kernel:
 * `element-batch.ts` encodes requests, `read-objects.ts` decodes answers, `NetlinkSocket` transports both. The program
 * nft, which changes chains and rules, is run by `RunNft`.
 *
 * One call at a time; a second call begins when the first has ended.
 */
export class NftablesConnection {
  readonly #socket: NetlinkSocket;
  #last: Promise<unknown> = Promise.resolve();

  /**
   * `bufferBytes` limits transactions as the kernel does for a process without CAP_NET_ADMIN on the host. Errors:
   * NETLINK_UNAVAILABLE.
   */
  constructor(bufferBytes?: number) {
    this.#socket = NetlinkSocket.open(bufferBytes);
  }

  /** Largest transaction, in bytes. */
  get maxTransactionBytes(): number {
    return this.#socket.maxSendBytes;
  }

  /**
   * Applies all steps in one transaction, or none of them.
   *
   * Errors: COMMIT_REJECTED with the kernel's reason and the set, after which nothing is changed;
   * TRANSACTION_TOO_LARGE.
   */
  commit(table: TableId, steps: readonly BatchStep[]): Promise<void> {
    return this.#inTurn(async () => {
      const batch = encodeBatch(table, steps);
      if (batch.lastSequence === 0) return;
      this.#discardInput();
      if (batch.bytes.length < offThreadBytes) this.#socket.send(batch.bytes);
      else await this.#socket.sendOffThread(batch.bytes);
      this.#readOutcome(table, batch);
    });
  }

  /** Returns the generation of the ruleset: any change in this network namespace, by any program, increments it. */
  generation(): Promise<number> {
    return this.#inTurn(async () => {
      const writer = new NetlinkWriter(64);
      writer.message({ type: nftables.getGeneration, flags: flags.request, sequence: 1, family: 0 });
      this.#discardInput();
      this.#socket.send(writer.bytes);
      const answer = this.#socket.receive();
      for (const message of answer === undefined ? [] : readMessages(answer)) {
        if (message.type !== nftables.newGeneration) continue;
        let id: number | undefined;
        forEachAttribute(message.payload.subarray(nfnetlinkHeaderBytes), (type, value) => {
          if (type === generationId) id = value.readUInt32BE(0);
        });
        if (id !== undefined) return id;
      }
      throw new BackendNftError("READ_FAILED", "the kernel did not report the generation of its ruleset");
    });
  }

  /**
   * Reads all elements of a set or map, and calls `take` with each. Between two datagrams of the kernel (about 300
   * elements) the event loop gets a turn.
   *
   * Errors: READ_FAILED, e.g. if the table or set does not exist, or changed meanwhile.
   */
  readElements(table: TableId, set: string, take: (element: ReadElement) => void): Promise<void> {
    const request = (writer: NetlinkWriter): void => {
      writer.text(elementList.table, table.name);
      writer.text(elementList.set, set);
    };
    return this.#dump(table, `set ${set}`, nftables.getElement, request, (bytes) => readElementList(bytes, take));
  }

  /**
   * Returns the rules of each chain of a table that has any, as texts that are equal if the rules are.
   *
   * Errors: READ_FAILED if the rules changed meanwhile.
   */
  async readRules(table: TableId): Promise<ReadonlyMap<string, readonly string[]>> {
    const rules = new Map<string, string[]>();
    const request = (writer: NetlinkWriter): void => writer.text(ruleAttribute.table, table.name);
    await this.#dump(table, "its rules", nftables.getRule, request, (bytes) => {
      const { table: name, chain, text } = readRule(bytes);
      if (name === table.name) rules.set(chain, [...(rules.get(chain) ?? []), text]);
    });
    return rules;
  }

  /** Returns the names of the chains and sets of a table; undefined if it does not exist. Errors: READ_FAILED. */
  async listObjects(table: TableId): Promise<TableObjects | undefined> {
    const tables: string[] = [];
    const nothing = (): void => undefined;
    await this.#dump(table, "the list of tables", nftables.getTable, nothing, (bytes) => {
      forEachAttribute(bytes, (type, value) => {
        if (type === tableAttribute.name) tables.push(readText(value));
      });
    });
    if (!tables.includes(table.name)) return undefined;
    const chains: string[] = [];
    await this.#dump(table, "its chains", nftables.getChain, nothing, (bytes) => {
      const chain = readChain(bytes);
      if (chain.table === table.name) chains.push(chain.name);
    });
    const sets: { kind: "set" | "map"; name: string }[] = [];
    await this.#dump(table, "its sets", nftables.getSet, nothing, (bytes) => {
      const { table: name, ...set } = readSet(bytes);
      if (name === table.name) sets.push(set);
    });
    return { chains, sets };
  }

  close(): void {
    this.#socket.close();
  }

  /** Sends one request for a list, and calls a function with each message of the answer. */
  #dump(
    table: TableId,
    what: string,
    type: number,
    write: (writer: NetlinkWriter) => void,
    take: (bytes: Buffer) => void,
  ): Promise<void> {
    return this.#inTurn(async () => {
      const writer = new NetlinkWriter(256);
      const family = table.family === "v4" ? 2 : 10;
      writer.message({ type, flags: flags.request | flags.dump, sequence: 1, family }, () => write(writer));
      this.#discardInput();
      this.#socket.send(writer.bytes);
      for (;;) {
        const answer = this.#socket.receive();
        if (answer === undefined) throw readFailure(table, what, "the list ended early");
        for (const message of readMessages(answer)) {
          if (message.type === messageType.done) return;
          if (message.type === messageType.error) {
            throw readFailure(table, what, getSystemErrorName(message.payload.readInt32LE(0)));
          }
          if ((message.flags & dumpInterrupted) !== 0) throw readFailure(table, what, "it changed meanwhile");
          take(message.payload.subarray(nfnetlinkHeaderBytes));
        }
        await new Promise((resolve) => setImmediate(resolve));
      }
    });
  }

  /** Discards late answers to an earlier request, so that they are not taken for answers to the next one. */
  #discardInput(): void {
    while (this.#socket.receive() !== undefined);
  }

  /** Reads the answers to a transaction; throws COMMIT_REJECTED if the kernel refused it. */
  #readOutcome(table: TableId, { stepOfMessage, lastSequence }: EncodedBatch): void {
    const refusals: string[] = [];
    let isAcknowledged = false;
    for (let answer = this.#socket.receive(); answer !== undefined; answer = this.#socket.receive()) {
      for (const { type, sequence, payload } of readMessages(answer)) {
        if (type !== messageType.error) continue;
        const code = payload.readInt32LE(0);
        if (code === 0) isAcknowledged ||= sequence === lastSequence;
        else {
          refusals.push(`${describeStep(stepOfMessage.get(sequence))}: ${getSystemErrorName(code)}`);
        }
      }
    }
    if (refusals.length === 0 && isAcknowledged) return;
    const reason = refusals.length === 0 ? "no acknowledgement" : [...new Set(refusals)].slice(0, 5).join("; ");
    throw new BackendNftError(
      "COMMIT_REJECTED",
      `the kernel rejected a transaction of ${stepOfMessage.size} messages on table ${table.name} (${table.family}): ${reason}`,
    );
  }

  /** Runs work after all earlier work has ended. */
  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const run = this.#last.then(work);
    this.#last = run.catch(() => undefined);
    return run;
  }
}

function describeStep(step: BatchStep | undefined): string {
  if (step === undefined) return "the transaction";
  return step.kind === "chain" ? `add chain ${step.chain}` : `${step.kind} in set ${step.set}`;
}

function readFailure({ name, family }: TableId, what: string, reason: string): BackendNftError {
  return new BackendNftError("READ_FAILED", `${what} of table ${name} (${family}) cannot be read: ${reason}`);
}
