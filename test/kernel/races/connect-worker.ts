// A thread that connects to an address again and again. Nothing routes there, so each attempt fails after the hook of
// sockets has run, and the socket can be used again. `connect-during-changes.ts` starts it.
import { createRequire } from "node:module";
import { workerData } from "node:worker_threads";

// The package that depends on it.
const koffi: typeof import("koffi") = createRequire(import.meta.resolve("@kpng/backend-ebpf/main.ts"))("koffi");
const { address, stop }: { readonly address: string; readonly stop: Int32Array } = workerData;
const library = koffi.load(null);
const connect = library.func("int connect(int, uint8_t *, uint32_t)");
const socket: number = library.func("int socket(int, int, int)")(2, 1, 0);
const destination = Buffer.from([2, 0, 0, 80, ...address.split(".").map(Number), ...Array(8).fill(0)]);
while (Atomics.load(stop, 0) === 0) connect(socket, destination, destination.length);
