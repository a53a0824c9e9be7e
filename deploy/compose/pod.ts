import { createServer } from "node:http";
import { hostname } from "node:os";

// The program of the pods in docker-compose.yaml: answers every request on port 8080 with the name of the pod.

const server = createServer((_, response) => response.end(hostname()));
server.listen(8080);
process.once("SIGTERM", () => process.exit(0));
