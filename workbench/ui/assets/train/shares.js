// Which answers and step positions the gradient of a stored step comes from, as bars.

/** @import { SharePayload } from "../../../views/payloads.d.ts" */

import { el } from "../../../views/dom.js";
import { share as percent } from "../../../views/numbers.js";

const TITLE = "Sum of |push| over these tokens ÷ the sum over all tokens of the step’s batch; a push is minus the " +
  "derivative of the loss by a token’s log-prob. Blue: the part that makes them more likely; orange: less likely.";

/** @param {SharePayload[]} shares @returns {HTMLElement[]} */
export function sharesOf(shares) {
  if (!shares.length) return [];
  const rows = shares.map(({ name, tokens, share, up }) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, name),
      el(
        "td",
        { class: "bar" },
        el("i", { class: "up", style: `width: ${100 * up}%` }),
        el("i", { class: "down", style: `width: ${100 * (share - up)}%` }),
      ),
      el("td", {}, percent(share, 1)),
      el("td", {}, `${tokens} tokens`),
    )
  );
  return [el("summary", { title: TITLE }, "Where the gradient comes from"), el("table", {}, el("tbody", {}, ...rows))];
}
