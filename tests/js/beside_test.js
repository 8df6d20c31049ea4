import { changes, differences } from "../../workbench/views/drawing/beside.js";
import { sorted } from "../../workbench/ui/assets/train/problems.js";
import { equal } from "./assert.js";

const told = (pieces) => pieces.map(({ text, differs }) => (differs ? `[${text}]` : text)).join("");
const both = (before, now) => differences(before, now).map(told);

Deno.test("what two answers have in common is not marked, and each text is whole", () => {
  equal(both("3 + 4 = 7\nso 7", "3 + 4 = 8\nso 8"), ["3 + 4 = [7\n]so [7]", "3 + 4 = [8\n]so [8]"]);
  equal(both("a b c", "a b c"), ["a b c", "a b c"]);
  equal(both("", "a b"), ["", "[a b]"]);
  equal(both("x a y b z", "a b "), ["[x ]a [y ]b [z]", "a b "]);
  equal(both("a a a", "a a"), ["a [a ]a", "a a"]);
  const long = Array.from({ length: 3000 }, (_, i) => `w${i} `).join("");
  const [before, now] = differences(`a ${long}b`, `c ${[...long].reverse().join("")}d`);
  equal([before, now].map((pieces) => pieces.length), [1, 1]); // too long to compare word by word
});

Deno.test("which answers became right, and which stayed as they were", () => {
  const of = (right, text) => ({ right, texts: [text] });
  const before = [of(false, "a"), of(true, "b"), of(true, "c"), of(false, "d"), of(null, "e")];
  const now = [of(true, "A"), of(false, "B"), of(true, "c"), of(false, "d"), of(true, "e"), of(true, "f")];
  equal(changes(before, now), { becameRight: 1, becameWrong: 1, right: 1, same: 3, judged: 4 });
  equal(changes([], now), { becameRight: 0, becameWrong: 0, right: 0, same: 0, judged: 0 });
});

Deno.test("problems by what became of them", () => {
  const of = (was, is) => ({ prompt: "", before: { text: "", right: was }, now: { text: "", right: is } });
  const rows = [of(false, true), of(true, true), of(true, false), of(false, false), of(false, true)];
  equal(sorted(rows).map(({ kind }) => kind), ["became-wrong", "became-right", "became-right", "right", "wrong"]);
});
