import { chmodSync } from "node:fs";
import { resolve } from "node:path";
import { build } from "esbuild";
import { bundleOptions } from "../images/bundle.ts";

/**
 * Writes `kpng` as one file that needs only Node.js 24: `node kpng.mjs get nodes`. A release has it beside the images.
 *
 * Usage: `npm run bundle -- [FILE]`; FILE defaults to `dist/kpng.mjs`. The file lacks what cannot be bundled: the
 * native module of kpng-nft and kpng-ebpf.
 */
const [file = "dist/kpng.mjs"] = process.argv.slice(2);
const { splitting: _splitting, chunkNames: _chunks, outExtension: _extension, ...options } = bundleOptions;
await build({ ...options, entryPoints: ["services/cli/src/main.ts"], outfile: resolve(file) });
chmodSync(file, 0o755);
process.stdout.write(`${file} written\n`);
