// The tip that follows the pointer over tokens.

/** @import { Credited, Measure } from "./payload.js" */

import { el } from "../dom.js";
import { facts, quoted, sumLine } from "./why.js";

const MARGIN = 8; // pixels to the edges of the window

/** A tip to be put into the page: `show(token, rollout, measure)` and `hide()`. */
export function makeTip() {
  const node = el("div", { class: "tip", role: "tooltip", hidden: true });

  /** @param {Element} token @param {Credited} rollout @param {Measure} measure */
  function show(token, rollout, measure) {
    const [box] = token.getClientRects();
    if (!box) return;
    const t = Number(/** @type {HTMLElement} */ (token).dataset.t);
    node.replaceChildren(...content(rollout, t, measure));
    node.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = node;
    const below = box.bottom + height + 10 < innerHeight;
    node.style.left = `${Math.max(4, Math.min(innerWidth - width - MARGIN, box.left))}px`;
    node.style.top = `${below ? box.bottom + 6 : Math.max(4, box.top - height - 6)}px`;
  }

  const hide = () => {
    node.hidden = true;
  };
  return { node, show, hide };
}

/** @param {Credited} rollout @param {number} t @param {Measure} measure */
function content(rollout, t, measure) {
  const rows = facts(rollout, t, measure).map(({ name, value, shown }) =>
    el("tr", { class: shown ? "shown" : null }, el("th", { scope: "row" }, name), el("td", {}, value))
  );
  const line = sumLine(rollout, t);
  return [
    el("b", {}, quoted(rollout.texts[t])),
    el("table", {}, ...rows),
    ...(line ? [el("p", { class: "sum" }, line)] : []),
  ];
}
