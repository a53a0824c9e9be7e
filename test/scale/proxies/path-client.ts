import { connect, prepareForRequests, receive, reset, send, shutdown, socketAddress } from "./c-sockets.ts";

/** Measurements of one run of this program. */
export interface PathSample {
  /** Time of each connect or request, in microseconds; one for a transfer. */
  readonly times: readonly number[];
  /** CPU time of this process, in microseconds, with the kernel's work for its packets as far as it is counted here. */
  readonly cpuUs: number;
}

const mebibyte = Buffer.alloc(1024 * 1024, "t");
const message = Buffer.alloc(64, "e");

/**
 * The client of `packet-path`, in the network namespace of a pod or outside: `path-client.ts KIND COUNT ADDRESS:PORT…`.
 * Prints a {@link PathSample} as JSON. *KIND*: `connect` opens connections one after the other and resets them,
 * `request` sends 64 bytes and waits for their echo, `transfer` sends COUNT MiB and waits for the confirmation.
 */
function measure(kind: string, count: number, addresses: readonly Buffer[]): readonly number[] {
  const [first = Buffer.alloc(16)] = addresses;
  const times: number[] = [];
  const timed = <T>(work: () => T): T => {
    const startMs = performance.now();
    const result = work();
    times.push((performance.now() - startMs) * 1_000);
    return result;
  };
  if (kind === "connect") {
    for (let at = 0; at < count; at++) reset(timed(() => connect(addresses[at % addresses.length] ?? first)));
    return times;
  }
  const socket = connect(first);
  prepareForRequests(socket);
  const answer = Buffer.alloc(message.length);
  const expectAnswer = (bytes: number): void => {
    if (Number(receive(socket, answer, answer.length, 0)) !== bytes) throw new Error("no answer");
  };
  for (let at = 0; kind === "request" && at < count; at++) {
    timed(() => {
      send(socket, message, message.length, 0);
      expectAnswer(message.length);
    });
  }
  if (kind === "transfer") {
    timed(() => {
      for (let at = 0; at < count; at++) {
        let sent = 0;
        while (sent < mebibyte.length) {
          const taken = Number(send(socket, mebibyte.subarray(sent), mebibyte.length - sent, 0));
          if (taken <= 0) throw new Error("the transfer has stopped");
          sent += taken;
        }
      }
      shutdown(socket, 1);
      expectAnswer(1);
    });
  }
  reset(socket);
  return times;
}

if (import.meta.main) {
  const [kind = "connect", count = "1000", ...targets] = process.argv.slice(2);
  const cpu = process.cpuUsage();
  const times = measure(kind, Number(count), targets.map(socketAddress));
  const { user, system } = process.cpuUsage(cpu);
  const sample: PathSample = { times: times.map((us) => Math.round(us * 10) / 10), cpuUs: user + system };
  process.stdout.write(JSON.stringify(sample));
}
