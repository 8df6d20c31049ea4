import { orderOf } from "../../workbench/ui/assets/table.js";
import { equal } from "./assert.js";

const headings = [{ title: "text", numeric: false }, { title: "score", numeric: true }];
const rows = [["step 10", "0.51"], ["step 9", "–"], ["other", "⌀ 0.6"], ["a", "-2 of 3"]];

Deno.test("a column is sorted by its numbers, what has none last both ways; texts by their digits", () => {
  equal(orderOf(rows, headings, null), [0, 1, 2, 3]);
  equal(orderOf(rows, headings, { column: 1, down: false }), [3, 0, 2, 1]);
  equal(orderOf(rows, headings, { column: 1, down: true }), [2, 0, 3, 1]);
  equal(orderOf(rows, headings, { column: 0, down: false }), [3, 2, 1, 0]);
});
