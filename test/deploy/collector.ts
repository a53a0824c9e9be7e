import { readFile } from "node:fs/promises";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer } from "node:net";
import { reasonOf } from "@kpng/process/log.ts";
import { parse } from "yaml";

// Stands for the program `otelcol` of the collector in docker-compose.yaml, whose image comes from a registry:
//
//   otelcol [validate] --config=FILE|URL…
//
// It reads all configurations, as the collector does; `validate` fails if one cannot be read or is no mapping.
// Otherwise it passes the bytes of OTLP on to the exporter's endpoint, and its health extension answers. Nothing else
// of a configuration is checked. containers.test.ts runs it in a container.

/** Parts of deploy/compose/collector.yaml that it uses. */
interface Configuration {
  readonly receivers: { readonly otlp: { readonly protocols: { readonly grpc: { readonly endpoint: string } } } };
  readonly exporters: { readonly otlp: { readonly endpoint: string } };
  readonly extensions: {
    readonly health_check: { readonly endpoint: string; readonly response_body: { readonly healthy: string } };
  };
}

async function readConfiguration(source: string): Promise<object> {
  const text = source.startsWith("http:") ? await download(source) : await readFile(source, "utf8");
  const read: unknown = parse(text);
  if (typeof read === "object" && read !== null && !Array.isArray(read)) return read;
  throw new Error(`${source} is no mapping: ${text}`);
}

async function download(url: string): Promise<string> {
  const response = await fetch(url);
  if (response.status !== 200) throw new Error(`${url} answers ${response.status}`);
  return response.text();
}

function addressOf(endpoint: string): { readonly host: string; readonly port: number } {
  const colon = endpoint.lastIndexOf(":");
  return { host: endpoint.slice(0, colon), port: Number(endpoint.slice(colon + 1)) };
}

function serve({ receivers, exporters, extensions }: Configuration): void {
  const forwarder = createServer((client) => {
    const server = connect(addressOf(exporters.otlp.endpoint));
    client.pipe(server).pipe(client);
    client.on("error", () => server.destroy());
    server.on("error", () => client.destroy());
  });
  forwarder.listen(addressOf(receivers.otlp.protocols.grpc.endpoint));
  const { endpoint, response_body } = extensions.health_check;
  createHttpServer((_, response) => response.end(response_body.healthy)).listen(addressOf(endpoint));
}

async function main(args: readonly string[]): Promise<void> {
  const sources = args.flatMap((arg) => (arg.startsWith("--config=") ? [arg.slice("--config=".length)] : []));
  const configurations = await Promise.all(sources.map(readConfiguration));
  if (args[0] !== "validate") serve(Object.assign({}, ...configurations) as Configuration);
}

process.once("SIGTERM", () => process.exit());
main(process.argv.slice(2)).catch((error: unknown) => {
  process.stderr.write(`Error: ${reasonOf(error)}\n`);
  process.exit(1);
});
