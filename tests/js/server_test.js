// What the tabs say of a server that does not answer: Gradio's own calls then give undefined, and do not reject.

import { copyLink } from "../../workbench/ui/assets/share.js";
import { answerOf } from "../../workbench/ui/assets/widget.js";
import { equal } from "./assert.js";

const NO_ANSWER = "The workbench did not answer; try again.";
const silent = () => Promise.resolve(undefined);

Deno.test("a call without an answer is an error, one that answers null is not", async () => {
  equal(await answerOf(silent()).catch(({ message }) => message), NO_ANSWER);
  equal(await answerOf(Promise.resolve(null)), null);
});

Deno.test("a link is not said to be copied where the group behind it could not be saved", async () => {
  equal(await copyLink({ keep: silent }), NO_ANSWER);
});
