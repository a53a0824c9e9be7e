import { readFile } from "node:fs/promises";
import { ProcessError } from "@kpng/process/process-error.ts";
import { isKeySet } from "./kube-authority.ts";
import type { TokenAuthority } from "./token-authority.ts";

/**
 * Returns an authority with the given issuers and a file of public keys, for watchers without access to the API server.
 * It reviews no tokens: each is valid until it expires. The file is a JSON Web Key Set, as `kubectl get --raw
 * /openid/v1/jwks` prints it; it is read again now and then.
 */
export function fileAuthority(path: string, issuers: readonly string[]): TokenAuthority {
  return {
    async readKeys(signal) {
      const text = await readFile(path, { encoding: "utf8", signal }).catch((cause: unknown) => {
        throw new ProcessError("TOKEN_FILE", `--token-jwks ${path} cannot be read`, { cause });
      });
      const keys: unknown = parseJson(text);
      if (!isKeySet(keys)) throw new ProcessError("TOKEN_FILE", `--token-jwks ${path} is not a JSON Web Key Set`);
      return { issuers, keys };
    },
    review: undefined,
  };
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
