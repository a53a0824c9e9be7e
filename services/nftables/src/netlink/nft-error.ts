import { CodedError } from "@kpng/process/coded-error.ts";

/** Codes of errors of kpng-nft. `docs/errors.md` explains each. */
export type BackendNftErrorCode =
  | "NETLINK_UNAVAILABLE"
  | "NFT_MISSING"
  | "COMMIT_REJECTED"
  | "READ_FAILED"
  | "NFT_UNSUPPORTED"
  | "TABLE_NOT_OURS";

/**
 * An error of the nft backend, thrown by the folders `netlink`, `read` and `commit`. It is defined here because
 * `netlink` is the lowest of them.
 */
export class BackendNftError extends CodedError<BackendNftErrorCode> {
  override readonly name = "BackendNftError";
}
