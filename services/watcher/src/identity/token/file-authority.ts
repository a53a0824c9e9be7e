import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { ProcessError } from "@kpng/process/process-error.ts";
import type { JSONWebKeySet } from "jose";
import { isKeySet } from "./kube-authority.ts";
import type { TokenAuthority } from "./token-authority.ts";

/**
 * Returns an authority with the given issuers and a file of public keys, for watchers without access to the API server.
 * It reviews no tokens: each is valid until it expires. The file is a JSON Web Key Set, as `kubectl get --raw
 * /openid/v1/jwks` prints it; it is read now, so that a wrong path is noticed at the start, and by each `readKeys`.
 *
 * Errors: TOKEN_FILE if the file cannot be read or is not a JSON Web Key Set.
 *
 * `makeTokenChecker` of the command line calls it for `--token-jwks`, and otherwise `kubeAuthority`.
 */
export function fileAuthority(path: string, issuers: readonly string[]): TokenAuthority {
  try {
    decodeKeys(path, readFileSync(path, "utf8"));
  } catch (error) {
    throw asTokenFileError(path, error);
  }
  return {
    async readKeys(signal) {
      try {
        return { issuers, keys: decodeKeys(path, await readFile(path, { encoding: "utf8", signal })) };
      } catch (error) {
        throw asTokenFileError(path, error);
      }
    },
    review: undefined,
  };
}

function asTokenFileError(path: string, cause: unknown): ProcessError {
  if (cause instanceof ProcessError) return cause;
  return new ProcessError("TOKEN_FILE", `--token-jwks ${path} cannot be read`, { cause });
}

function decodeKeys(path: string, text: string): JSONWebKeySet {
  const keys: unknown = parseJson(text);
  if (!isKeySet(keys)) throw new ProcessError("TOKEN_FILE", `--token-jwks ${path} is not a JSON Web Key Set`);
  return keys;
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
