import { createRegistry, type DescFile, type DescService, type Registry, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Code, type ConnectRouter } from "@connectrpc/connect";
import { compareText } from "@kpng/model/collections.ts";
import { ServerReflection, type ServerReflectionRequest } from "@kpng/model/gen/grpc/reflection/v1/reflection_pb.ts";
import type { Scheduler } from "../session/scheduler.ts";

/**
 * Adds grpc.reflection.v1 for the proto files of `services`. Tools such as grpcurl use it to discover the services and
 * messages of this watcher.
 */
export function addReflection(router: ConnectRouter, services: readonly DescService[], scheduler: Scheduler): void {
  const index = makeIndex([...services, ServerReflection]);
  async function* serverReflectionInfo(requests: AsyncIterable<ServerReflectionRequest>) {
    for await (const request of requests) {
      const { messageRequest } = request;
      // The answer is deferred, because these streams need no rights and must not delay nodes.
      const messageResponse = await scheduler.run("query", () => answer(messageRequest, index));
      yield { validHost: request.host, originalRequest: request, messageResponse };
    }
  }
  router.service(ServerReflection, { serverReflectionInfo });
}

interface Index {
  readonly services: readonly string[];
  readonly files: ReadonlyMap<string, DescFile>;
  readonly registry: Registry;
}

/** Returns the files and all files that they import, by name. */
function withImports(files: readonly DescFile[], all = new Map<string, DescFile>()): ReadonlyMap<string, DescFile> {
  for (const file of files) {
    if (all.has(file.proto.name)) continue;
    all.set(file.proto.name, file);
    withImports(file.dependencies, all);
  }
  return all;
}

function makeIndex(services: readonly DescService[]): Index {
  const files = withImports(services.map(({ file }) => file));
  return {
    services: services.map((service) => service.typeName).sort(compareText),
    files,
    registry: createRegistry(...files.values()),
  };
}

function answer(question: ServerReflectionRequest["messageRequest"], { services, files, registry }: Index) {
  switch (question.case) {
    case "listServices":
      return { case: "listServicesResponse" as const, value: { service: services.map((name) => ({ name })) } };
    case "fileByFilename":
      return descriptors(files.get(question.value), `file "${question.value}"`);
    case "fileContainingSymbol":
      return descriptors(fileOf(question.value, registry), `symbol "${question.value}"`);
    default:
      return failure(
        Code.InvalidArgument,
        "the reflection request asks for extensions, which this server does not have, or for nothing",
      );
  }
}

function failure(errorCode: Code, errorMessage: string) {
  return { case: "errorResponse" as const, value: { errorCode, errorMessage } };
}

/** Returns the descriptors of a file and of all its imports. */
function descriptors(file: DescFile | undefined, what: string) {
  if (file === undefined) return failure(Code.NotFound, `${what} not found`);
  const fileDescriptorProto = [...withImports([file]).values()].map((one) =>
    toBinary(FileDescriptorProtoSchema, one.proto),
  );
  return { case: "fileDescriptorResponse" as const, value: { fileDescriptorProto } };
}

/** Returns the file that defines a type or service, or one of its members (method, field, oneof). */
function fileOf(symbol: string, registry: Registry): DescFile | undefined {
  const owner = registry.get(symbol) ?? registry.get(symbol.slice(0, Math.max(symbol.lastIndexOf("."), 0)));
  return owner?.file;
}
