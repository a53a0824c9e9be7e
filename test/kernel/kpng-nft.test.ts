import { kpngNft } from "./backend/kpng-proxy.ts";
import { describeBackend } from "./describe-backend.ts";

describeBackend({ name: "kpng-nft", start: kpngNft });
