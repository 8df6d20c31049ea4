// The pure parts of curves: columns, values and places as they are read, colours. All numbers by hand.

import { equal } from "./assert.js";
import { colour, indexAt, numbers, shareRange, valueText } from "../../workbench/views/curves.js";
import { fileName } from "../../workbench/views/dom.js";

Deno.test("columns come packed", () => {
  equal(numbers("AACAPwAAAMA="), [1, -2]);
});

Deno.test("a value has the digits that are read", () => {
  equal([valueText(0), valueText(13.75), valueText(70), valueText(-0.25), valueText(1234.5), valueText(0.0002)], [
    "0",
    "13.75",
    "70",
    "\u22120.250",
    "1235",
    "2.0e\u22124",
  ]);
  equal([valueText(0.8, true), valueText(0.05, true), valueText(0, true)], ["80 %", "5.0 %", "0 %"]);
});

Deno.test("a point is read at its x or before", () => {
  equal([indexAt([1, 5, 9], 5), indexAt([1, 5, 9], 8), indexAt([1, 5, 9], 0), indexAt([1, 5], null)], [1, 1, -1, 1]);
});

Deno.test("no two configurations share a colour", () => {
  equal(new Set(Array.from({ length: 24 }, (_, n) => colour(n))).size, 24);
});

Deno.test("a file's name holds no separator", () => {
  equal(fileName("run 1", "", "kl/k1"), "run_1-kl_k1");
});

Deno.test("the axis of shares goes a little beyond them, and is a tenth at least", () => {
  const rounded = (/** @type {number} */ least, /** @type {number} */ greatest) =>
    shareRange(least, greatest).map((end) => Number(end.toFixed(3)));
  equal([rounded(0.3, 0.3), rounded(0.2, 0.7)], [[0.25, 0.35], [0.17, 0.73]]); // 6 % of 0.5 is 0.03
  equal([rounded(0.01, 0.02), rounded(0.5, 1)], [[0, 0.065], [0.47, 1.02]]);
});
