import { createSocket } from "node:dgram";
import { connect, isIPv6 } from "node:net";
import { createInterface } from "node:readline";
import type { Question, Reply } from "./question.ts";

// A client that stays running in its namespace, because starting a process for each packet takes longer than the packet.
// Reads `[number, Question]` a line, writes `[number, Reply]` a line, in the order in which replies come.

function askTcp({ address, port, timeoutMs }: Question): Promise<Reply> {
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    let name = "";
    const end = (reply: Reply) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(reply);
    };
    const timer = setTimeout(() => end(silence("timeout")), timeoutMs);
    socket.on("data", (data) => {
      name += String(data);
    });
    socket.on("end", () => end({ kind: "answer", name }));
    socket.on("error", (error) => end(silence(reasonOf(error))));
  });
}

function askUdp({ address, port, timeoutMs }: Question): Promise<Reply> {
  return new Promise((resolve) => {
    // A socket each, so that every question has its own port and is a connection of its own for the node.
    const socket = createSocket(isIPv6(address) ? "udp6" : "udp4");
    const end = (reply: Reply) => {
      clearTimeout(timer);
      socket.close();
      resolve(reply);
    };
    const timer = setTimeout(() => end(silence("timeout")), timeoutMs);
    socket.once("message", (data) => end({ kind: "answer", name: String(data) }));
    socket.once("error", (error) => end(silence(reasonOf(error))));
    socket.send("who?", port, address);
  });
}

function silence(reason: string): Reply {
  return { kind: "silence", reason };
}

function reasonOf(error: NodeJS.ErrnoException): string {
  return error.code ?? error.message;
}

for await (const line of createInterface({ input: process.stdin })) {
  const [number, question]: [number, Question] = JSON.parse(line);
  void (question.protocol === "tcp" ? askTcp(question) : askUdp(question)).then((reply) =>
    process.stdout.write(`${JSON.stringify([number, reply])}\n`),
  );
}
