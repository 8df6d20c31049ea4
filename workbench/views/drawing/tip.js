// The tip that follows the pointer over tokens, and over the steps' chips and cells.

/** @import { Credited, Measure } from "./payload.js" */

import { el } from "../dom.js";
import { score } from "../numbers.js";
import { stepSaid } from "./measures.js";
import { observationAt, OBSERVED } from "./turns.js";
import { facts, quoted, remarks, sumLine } from "./why.js";

const MARGIN = 8; // pixels to the edges of the window
const CELL_TEXT = 160; // characters of a step

/** A tip to be put into the page: `show(tokenOrStep, rollout, g, measure)` and `hide()`. */
export function makeTip() {
  const node = el("div", { class: "tip", role: "tooltip", hidden: true });

  /** @param {Element} target @param {Credited} rollout @param {number} g @param {Measure} measure */
  function show(target, rollout, g, measure) {
    const [box] = target.getClientRects();
    const { t, k } = /** @type {HTMLElement} */ (target).dataset;
    const about = t === undefined ? ofStep(rollout, g, Number(k), measure) : content(rollout, Number(t), measure);
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

/** @param {Credited} rollout @param {number} g @param {number} k @param {Measure} measure */
function ofStep(rollout, g, k, measure) {
  const step = rollout.steps?.[k];
  if (!step) return [];
  const text = rollout.texts.join("").slice(step.start, step.end).trim();
  const cut = text.length > CELL_TEXT ? `${text.slice(0, CELL_TEXT)}…` : text;
  const said = measure.key === "reward" ? "" : stepSaid(measure, rollout, k);
  const numbers = [rollout.wrong?.[k] ? `✕ ${rollout.wrong[k]}` : "", `score ${score(step.reward)}`, said].filter(
    Boolean,
  ).join(" · ");
  return [
    el("span", {}, `${rollout.name ?? `rollout ${g + 1}`} · step ${k + 1} of ${rollout.steps?.length}`),
    el("p", { class: "sum" }, el("b", {}, cut)),
    el("p", { class: "sum" }, numbers),
    ...remarks(rollout, k),
  ];
}

/** @param {Credited} rollout @param {number} t @param {Measure} measure */
function content(rollout, t, measure) {
  const rows = facts(rollout, t, measure).map(({ name, value, shown }) =>
    el("tr", { class: shown ? "shown" : null }, el("th", { scope: "row" }, name), el("td", {}, value))
  );
  const isCulprit = rollout.steps?.[rollout.stepOf[t]]?.culprit === t;
  const line = observationAt(rollout, t) ? OBSERVED : sumLine(rollout, t);
  return [
    el("b", {}, quoted(rollout.texts[t])),
    el("table", {}, ...rows),
    ...(isCulprit ? [el("p", { class: "sum" }, "Its step goes wrong here.")] : []),
    ...remarks(rollout, rollout.stepOf[t]),
    ...(line ? [el("p", { class: "sum" }, line)] : []),
  ];
}
