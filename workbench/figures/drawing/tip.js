// The tip that follows the pointer over tokens, and over the chips of steps of which something was logged.

/** @import { Credited, Measure } from "./payload.js" */

import { el } from "../dom.js";
import { facts, quoted, remarks, sumLine } from "./why.js";

const MARGIN = 8; // pixels to the edges of the window

/** A tip to be put into the page: `show(tokenOrChip, rollout, measure)` and `hide()`. */
export function makeTip() {
  const node = el("div", { class: "tip", role: "tooltip", hidden: true });

  /** @param {Element} target @param {Credited} rollout @param {Measure} measure */
  function show(target, rollout, measure) {
    const [box] = target.getClientRects();
    const { t, k } = /** @type {HTMLElement} */ (target).dataset;
    const about = t === undefined ? ofStep(rollout, Number(k)) : content(rollout, Number(t), measure);
    if (!box || !about.length) return;
    node.replaceChildren(...about);
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

/** @param {Credited} rollout @param {number} k */
function ofStep(rollout, k) {
  const said = rollout.steps?.[k]?.logged ? remarks(rollout, k) : [];
  return said.length ? [el("b", {}, `step ${k + 1}`), ...said] : [];
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
    ...remarks(rollout, rollout.stepOf[t]),
    ...(line ? [el("p", { class: "sum" }, line)] : []),
  ];
}
