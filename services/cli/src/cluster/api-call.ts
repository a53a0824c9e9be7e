import type { ApiCall } from "@kpng/laboratory/check/api-server-states.ts";
import { connectKube } from "@kpng/source/kube/connect.ts";
import { parseJson, readText } from "@kpng/source/kube/connection.ts";

/** Time limit of a request, in milliseconds. */
const limitMs = 30_000;

/** Returns a function that sends requests to the API server of a kubeconfig. Errors: BAD_OPTION. */
export function callApi(kubeconfig: string): ApiCall {
  const client = connectKube({ kubeconfig });
  return async (method, path, body) => {
    const response = await client.send(method, path, body as object | undefined, AbortSignal.timeout(limitMs));
    const text = await readText(response.body);
    if (response.status >= 300) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 500)}`);
    return parseJson(text);
  };
}
