// Train's form: which fields a method has, and what is typed.

import { equal } from "./assert.js";
import { isNews, shows, valueOf } from "../../workbench/ui/assets/train/form.js";

/** @param {string[] | null} methods */
const field = (methods) => /** @type {any} */ ({ methods });

Deno.test("a field is in the forms of its methods, and one of every run in all", () => {
  equal(shows(field(["dpo", "sft"]), "dpo"), true);
  equal(shows(field(["dpo", "sft"]), "grpo"), false);
  equal(shows(field(null), "grpo"), true);
});

Deno.test("what a form was told before, given to it again, is no news", () => {
  equal(isNews({ told: "a" }, undefined), true); // its first value
  equal(isNews({ told: "a" }, "a"), false); // once more, as Gradio mounts the part
  equal(isNews({ told: "b" }, "a"), true);
  equal(isNews(null, undefined), true);
});

Deno.test("a number field that is empty or holds no number yet is null; text is as it is", () => {
  equal(["3", " 1e-5 ", "0", "", " ", "-", "1e", "NaN"].map((text) => valueOf("number", text)), [
    3,
    1e-5,
    0,
    null,
    null,
    null,
    null,
    null,
  ]);
  equal(valueOf("text", " 3 "), " 3 ");
  equal(valueOf("choice", ""), "");
});
