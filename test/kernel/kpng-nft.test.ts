import { kpngNft } from "./backend/kpng-nft.ts";
import { describeBackend } from "./describe-backend.ts";

describeBackend({ name: "kpng-nft", whyNot: undefined, start: kpngNft });
